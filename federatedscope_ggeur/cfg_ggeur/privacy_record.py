"""Derive from a run's settings its privacy guarantee, and who sees which data."""

from __future__ import annotations

from dataclasses import replace

from federatedscope_ggeur.data.transforms import LIFT
from federatedscope_ggeur.extras import all_of
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import (
    due_exchanges,
    plugin_exchanges,
)
from federatedscope_ggeur.reporting import Privacy

from .demands import demands_of
from .method_settings import base_method, parts_in_use
from .run_settings import server_evaluates
from .transform import row_transform

_LIFTED = (
    "the threshold does not protect rows that data.transform lifts: they can be solved "
    "for from their statistics"
)
_POOLED = "the rows of all clients are pooled in one place, which sees each of them"


def privacy_of(cfg, engine: str = "") -> Privacy:
    """The privacy of a run with `cfg` on an engine, as docs/privacy.md describes it."""
    found = _privacy_of(cfg)
    warning = all_of("runs_code").get(engine)
    if warning is None or not (
        found.keys or (found.dp and found.dp.noise_by == "client")
    ):
        return found
    return replace(found, warnings=[warning, *found.warnings])


def _privacy_of(cfg) -> Privacy:
    demands = demands_of(cfg)
    if base_method(cfg).pools_data:
        return Privacy(
            guarantee="none",
            covers=[],
            against=[],
            threshold=0,
            threshold_on="client",
            server_sees=["the rows of all clients"],
            clients_see=["the head"],
            warnings=[_POOLED],
        )
    found = _of_core(cfg, demands)
    for part in due_exchanges(demands):
        found = part.privacy(found, demands)
    return found


def _of_core(cfg, demands: Demands) -> Privacy:
    """The privacy of a run, before its exchanges say what they change."""
    ggeur, totals, steps = cfg.ggeur, demands.only_totals, demands.steps
    server = _server_sees(cfg, demands)
    clients = ["the head"]
    if steps:
        pooled = ggeur.geometry == "pooled"
        clients.append(f"{'one shape' if pooled else 'a shape for each class'}")
    if 2 in steps:
        clients.append(
            "class means over all clients" if totals else "class means of others"
        )
    if totals:
        clients.insert(0, "rows of each class over all clients")
    warnings = [_LIFTED] if row_transform(cfg) == LIFT else []
    warnings += [
        f"the exchange {part.name} of a plugin escapes the masks: {part.REVEALS}"
        for part in plugin_exchanges(demands)
    ]
    return Privacy(
        guarantee="none",
        covers=[],
        against=[],
        threshold=0 if demands.noisy else int(ggeur.privacy.min_samples),
        threshold_on="sum" if totals and not demands.noisy else "client",
        server_sees=server,
        clients_see=clients,
        warnings=warnings,
    )


def _server_sees(cfg, demands: Demands) -> list[str]:
    seen = []
    if demands.noisy:
        pass  # the exchange says what it sends
    elif demands.only_totals:
        seen.append("counts, means and one scatter over all clients")
    elif demands.statistics or demands.calibrates:
        seen.append("each client's class statistics")
    if demands.trains:
        seen += ["each client's updates", "each client's aggregation weight"]
        seen += [
            f"of {part.name}: {part.sends}" for part in parts_in_use(cfg) if part.sends
        ]
    if demands.reports_scores and not server_evaluates(cfg):
        seen.append("each client's scores: rows, hits and the sum of their losses")
    seen += [
        f"of the exchange {part.name}: {part.REVEALS or 'its plugin does not say what'}"
        for part in plugin_exchanges(demands)
    ]
    if cfg.federate.mode == "distributed" and not demands.noisy:
        seen.append("how many rows each client declares, and a bound of their norms")
    return seen
