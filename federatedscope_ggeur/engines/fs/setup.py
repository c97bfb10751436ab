"""Helps to set up both workers inside FederatedScope (FS)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from federatedscope_ggeur.federation.exchanges.evaluation.scores import METRICS


def for_constructor(config, changes: Mapping[str, object] | None = None):
    """A copy of the config for FS's constructor, with some keys changed.

    `changes` are given by ``<section>.<key>``. In the modes "standalone" and
    "distributed" FS's constructors make a communication manager, which unpickles
    received bytes. The copy has no mode, so they make none. The worker makes its own
    manager afterwards.
    """
    copy = config.clone()
    copy.defrost()
    # FS's monitor fails on metrics that are not in its config.
    own = {"federate.mode": "", "eval.metrics": list(METRICS)}
    for name, value in {**own, **(changes or {})}.items():
        section, key = name.split(".")
        copy[section][key] = value
    copy.freeze(inform=False, save=False, check_cfg=False)
    return copy


def follow_fs_logging() -> None:
    """Send the plugin's log lines to FS's console log and exp_print.log."""
    ours, theirs = (
        logging.getLogger("federatedscope_ggeur"),
        logging.getLogger("federatedscope"),
    )
    for handler in list(ours.handlers):
        ours.removeHandler(handler)
    for handler in theirs.handlers:
        ours.addHandler(handler)
    ours.setLevel(theirs.level)
    ours.propagate = False
