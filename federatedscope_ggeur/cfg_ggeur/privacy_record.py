"""Which guarantee a run gives and who sees what, from its settings alone."""

from __future__ import annotations

from federatedscope_ggeur.cfg_ggeur.method_settings import base_method, parts_in_use
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    asks_for_statistics,
    augmentation_steps,
    only_closed_form,
    server_evaluates,
)
from federatedscope_ggeur.cfg_ggeur.secure_sums import sums_on
from federatedscope_ggeur.reporting import Privacy

_TRAINING = "training rounds escape the masks: each client's update is seen"
_COUNTS_FOR = "what a client counts for escapes them, too"
_POOLED = "the rows of all clients are pooled in one place, which sees each of them"
_TOTALS = "rows of each class over all clients are seen by everyone"


def privacy_of(cfg) -> Privacy:
    """What docs/privacy.md says of the modes of `cfg`."""
    ggeur = cfg.ggeur
    if base_method(cfg).pools_data:
        return Privacy(
            guarantee="none",
            covers=[],
            threshold=int(ggeur.privacy.min_samples),
            threshold_on="client",
            server_sees=["the rows of all clients"],
            clients_see=["the head"],
            warnings=[_POOLED],
        )
    sums, trains = sums_on(ggeur), not only_closed_form(ggeur)
    server = _server_sees(cfg, sums, trains)
    clients = ["the head"]
    steps = augmentation_steps(ggeur)
    if steps:
        pooled = ggeur.geometry == "pooled"
        clients.append(f"{'one shape' if pooled else 'a shape for each class'}")
    if 2 in steps:
        clients.append(
            "class means over all clients" if sums else "class means of others"
        )
    if sums:
        clients.insert(0, "rows of each class over all clients")
    warnings = [_TRAINING, _COUNTS_FOR] if sums and trains else []
    return Privacy(
        guarantee="sums" if sums else "none",
        covers=["the statistics of round 0"] if sums else [],
        threshold=int(ggeur.privacy.min_samples),
        threshold_on="sum" if sums else "client",
        server_sees=server,
        clients_see=clients,
        warnings=[*warnings, _TOTALS] if sums else [],
    )


def _server_sees(cfg, sums: bool, trains: bool) -> list[str]:
    seen = []
    if sums:
        seen.append("counts, means and one scatter over all clients")
    elif asks_for_statistics(cfg.ggeur):
        seen.append("each client's class statistics")
    if trains:
        seen += ["each client's updates", "what each client counts for"]
        seen += [
            f"of {part.name}: {part.sends}" for part in parts_in_use(cfg) if part.sends
        ]
    if not server_evaluates(cfg):
        seen.append("each client's scores: rows, hits and the sum of their losses")
    if cfg.federate.mode == "distributed":
        seen.append("how many rows each client declares, and a bound of their norms")
    return seen
