"""Checks the settings of FederatedScope's (FS's) search for hyperparameters.

FS searches in hpo.py. In main.py the settings ``hpo.*`` do nothing. Their packages are
required there, too, so that both programs accept the same files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.run_settings import server_evaluates
from federatedscope_ggeur.federation.exchanges.evaluation.scores import METRICS

EXTRA = "hpo"
#: The schedulers, and what each needs beside ConfigSpace.
SCHEDULERS = {
    "sha": "",
    **dict.fromkeys(("rs", "hb", "bohb", "bo_kde"), "hpbandster"),
    **dict.fromkeys(("bo_gp", "bo_rf"), "smac"),
}
#: FS imports a module that only smac before version 2 has.
_SMAC = ("smac", "smac.facade", "smac.facade.smac_bb_facade")
#: FS's names for best scores, and the form of ``eval.report`` that each needs.
_BEST_OF_CLIENTS = {
    "client_summarized_weighted_avg": "weighted_avg",
    "client_summarized_avg": "avg",
    "client_best_individual": "",
}
_BEST_OF_SERVER = "server_global_eval"


def missing_package(name: str, extra: str) -> str:
    """Tell how to install a missing package; "" if it is installed."""
    if find_spec(name) is not None:
        return ""
    command = f"pip install 'federatedscope-ggeur[{extra}]'"
    return f"needs the package {name}, which is not installed: {command}"


def is_search() -> bool:
    """Whether this process is FS's hpo.py."""
    package = sys.modules.get("federatedscope")
    if package is None or package.__file__ is None or not sys.argv[0]:
        return False
    program = Path(package.__file__).resolve().with_name("hpo.py")
    return Path(sys.argv[0]).resolve() == program.resolve()


def search_problems(cfg) -> list[str]:
    """The settings ``hpo.*`` that cannot work, each as a line."""
    searches = is_search()
    if not (searches or cfg.hpo.ss):
        return []
    found = list(_missing(cfg.hpo.scheduler))
    if searches:
        found += _impossible(cfg)
    return [f"  {line}" for line in found]


def _missing(scheduler: str) -> Iterator[str]:
    package = SCHEDULERS.get(scheduler, "")
    if problem := missing_package("ConfigSpace", EXTRA):
        yield f"hpo.ss: {problem}"
    if package == "smac":
        if not all(map(find_spec, _SMAC)):
            yield (
                f"hpo.scheduler: {scheduler} needs the package smac below version 2, "
                "which conflicts with other required packages; take rs, sha or bohb"
            )
    elif package and (problem := missing_package(package, EXTRA)):
        yield f"hpo.scheduler: {scheduler} {problem}"


def _impossible(cfg) -> Iterator[str]:
    hpo, sha = cfg.hpo, cfg.hpo.sha
    if not Path(hpo.ss).is_file():
        yield f"hpo.ss: must name the YAML file of the search space, got {hpo.ss!r}"
    if hpo.scheduler.startswith("wrap_"):
        yield f"hpo.scheduler: {hpo.scheduler} wraps FedEx, see hpo.fedex.use"
    elif hpo.scheduler not in SCHEDULERS:
        yield f"hpo.scheduler: must be one of {', '.join(SCHEDULERS)}"
    if not _are_budgets(sha.budgets):
        yield (
            "hpo.sha.budgets: must be the fewest and the most rounds of a trial, such "
            f"as [2, 8], got {sha.budgets}"
        )
    if sha.elim_rate < 2:
        yield f"hpo.sha.elim_rate: must be 2 or more, got {sha.elim_rate}"
    if hpo.init_cand_num < 2:
        yield f"hpo.init_cand_num: must be 2 or more, got {hpo.init_cand_num}"
    if cfg.federate.mode != "standalone":
        yield "federate.mode: hpo.py searches in standalone mode only"
    if cfg.wandb.use:
        yield "wandb.use: FederatedScope's own search fails with it"
    yield from _metric_problems(cfg)


def _are_budgets(budgets) -> bool:
    whole = isinstance(budgets, (list, tuple)) and all(
        isinstance(rounds, int) and rounds >= 1 for rounds in budgets
    )
    return whole and len(budgets) == 2 and budgets[0] <= budgets[1]


def _metric_problems(cfg) -> Iterator[str]:
    """Problems of metrics that no trial will have.

    `trials` checks later whether the metric's split has rows.
    """
    who, _, metric = cfg.hpo.metric.partition(".")
    known = {_BEST_OF_SERVER}
    if not server_evaluates(cfg):
        known |= {
            name
            for name, form in _BEST_OF_CLIENTS.items()
            if not form or form in cfg.eval.report
        }
    names = [f"{split}_{name}" for split in cfg.eval.split for name in METRICS]
    if who not in known or metric not in names:
        yield (
            f"hpo.metric: no trial has {cfg.hpo.metric!r}; it is one of "
            f"{', '.join(sorted(known))}, a dot, and one of {', '.join(names)}"
        )
    if cfg.eval.best_res_update_round_wise_key not in names:
        yield (
            "eval.best_res_update_round_wise_key: hpo.py needs one of "
            f"{', '.join(names)}"
        )


def metric_split(cfg) -> str:
    """The split on which ``hpo.metric`` is computed."""
    return cfg.hpo.metric.partition(".")[2].partition("_")[0]
