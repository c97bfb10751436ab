"""What both workers need while they are set up inside FederatedScope (FS)."""

from __future__ import annotations

import logging


class DeferredMode:
    """Keeps FS's worker from opening its own gRPC port.

    FS's constructors make a communication manager for the mode "standalone" or
    "distributed". Until `set_up` the mode is neither, so they make none; the plugin's
    worker then makes its own. FS's would unpickle what it receives.
    """

    _is_set_up = False

    def set_up(self) -> None:
        """FS's constructor is done: from now on the mode is the config's."""
        self._is_set_up = True

    @property
    def mode(self) -> str:
        return self._mode if self._is_set_up else "being set up"

    @mode.setter
    def mode(self, value: str) -> None:
        self._mode = value


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
