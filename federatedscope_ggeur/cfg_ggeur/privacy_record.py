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
from federatedscope_ggeur.federation.exchanges.noisy_release.keys import release_plan
from federatedscope_ggeur.federation.noise import CLIENT, SERVER
from federatedscope_ggeur.geometry.gaussian_privacy import epsilon_of
from federatedscope_ggeur.geometry.noisy_release import replaced_mu
from federatedscope_ggeur.reporting import DifferentialPrivacy, Privacy

from .demands import demands_of
from .method_settings import base_method, parts_in_use
from .run_settings import server_evaluates
from .transform import row_transform

_LIFTED = (
    "the threshold does not protect rows that data.transform lifts: they can be solved "
    "for from their statistics"
)
_POOLED = "the rows of all clients are pooled in one place, which sees each of them"


_UNIT = "a person with g rows has g times the mu of one row"
_TRUSTED = "the server sees everything without noise"
_NOT_PRIVATE = "not private: the noise is drawn by a test seed"
_SCORES = "clients' scores are exact and not covered"
_NO_LEDGER = "there is no ledger: releases of the same rows are not added up"
_NOT_COVERED = (
    "which clients take part, and their domains",
    "class names and the encoder",
    "how long clients compute",
    "rows for tests and validation",
)


def privacy_of(cfg, engine: str = "") -> Privacy:
    """The privacy of a run with `cfg` on an engine, as docs/privacy.md describes it."""
    found = _privacy_of(cfg)
    warning = all_of("runs_code").get(engine)
    if warning is None or not (
        found.keys or (found.dp and found.dp.noise_by == CLIENT)
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
    found = _with_noise(cfg, demands) if demands.noisy else _without(cfg, demands)
    for part in due_exchanges(demands):
        found = part.privacy(found, demands)
    return found


def _without(cfg, demands: Demands) -> Privacy:
    """The privacy of a run in which clients send exact numbers."""
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
        threshold=int(ggeur.privacy.min_samples),
        threshold_on="sum" if totals else "client",
        server_sees=server,
        clients_see=clients,
        warnings=warnings,
    )


def _with_noise(cfg, run: Demands) -> Privacy:
    """The privacy of a run under differential privacy.

    In such a run, no exact number about rows leaves a client.
    """
    by = run["dp.noise"]
    plan = release_plan(run, 2, 2)
    seen = ["statistics of each client without noise"] if by == SERVER else []
    seen += ["each client's statistics with noise"] if by == CLIENT else []
    warnings = [_UNIT]
    if by == SERVER:
        warnings.insert(0, _TRUSTED)
    if run["dp.test_seed"] is not None:
        warnings.insert(0, _NOT_PRIVATE)
    if run["dp.report_scores"] and not server_evaluates(cfg):
        seen.append("each client's scores: rows, hits and the sum of their losses")
        warnings.append(_SCORES)
    if not run["dp.ledger"]:
        warnings.append(_NO_LEDGER)
    return Privacy(
        guarantee="statistics" if run["dp.test_seed"] is None else "none",
        covers=["the statistics of round 0, and all that is made of them"],
        against=_against(by),
        threshold=0,
        threshold_on="client",
        server_sees=seen,
        clients_see=["the mean of all rows with noise", "the head"],
        warnings=warnings,
        dp=DifferentialPrivacy(
            mechanism="discrete Gaussian noise on counts, mean and clipped sums"
            + (", and on the clipped second moment" if plan.square else ""),
            adjacency="one row of one client more or less",
            epsilon=plan.epsilon,
            delta=plan.delta,
            epsilon_replaced=epsilon_of(replaced_mu(plan), plan.delta),
            noise_by=by,
            not_covered=list(_NOT_COVERED),
        ),
    )


def _against(by: str) -> list[str]:
    if by == SERVER:
        return ["curious clients", "users of the head"]
    if by == CLIENT:
        return ["the server and all other clients together"]
    return ["the server together with the tolerated number of clients"]


def _server_sees(cfg, demands: Demands) -> list[str]:
    seen = []
    if demands.only_totals:
        seen.append("counts, means and one scatter over all clients")
    elif demands.statistics or demands.calibrates:
        seen.append("each client's class statistics")
    if demands.trains:
        seen += ["each client's updates", "each client's aggregation weight"]
        seen += [
            f"of {part.name}: {part.sends}" for part in parts_in_use(cfg) if part.sends
        ]
    if not server_evaluates(cfg):
        seen.append("each client's scores: rows, hits and the sum of their losses")
    seen += [
        f"of the exchange {part.name}: {part.REVEALS or 'its plugin does not say what'}"
        for part in plugin_exchanges(demands)
    ]
    if cfg.federate.mode == "distributed":
        seen.append("how many rows each client declares, and a bound of their norms")
    return seen
