"""What both workers need while they are set up inside FederatedScope (FS)."""

from __future__ import annotations

import logging
from collections.abc import Mapping


def for_constructor(config, changes: Mapping[str, object] | None = None):
    """A copy of the config for FS's constructor, with some ``<section>.<key>`` changed.

    FS's constructors make a communication manager for the mode "standalone" or
    "distributed", which would unpickle what it receives; in no mode they make none, and
    the worker makes its own afterwards.
    """
    copy = config.clone()
    copy.defrost()
    for name, value in {"federate.mode": "", **(changes or {})}.items():
        section, key = name.split(".")
        copy[section][key] = value
    copy.freeze(inform=False, save=False, check_cfg=False)
    return copy


def follow_fs_logging() -> None:
    """Send the plugin's log lines where FS's go: its console and exp_print.log."""
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
