"""``ggeur --engine flower --cfg FILE``: runs Flower on this machine."""

from __future__ import annotations

import signal

from federatedscope_ggeur.commands.console import shown_on_console
from federatedscope_ggeur.engines.flower.local import run_locally
from federatedscope_ggeur.reporting import read_results, results_table


def run_with_flower(cfg, level: str | None = None) -> int:
    """Run `cfg` through Flower and print its table; returns the exit status 0.

    Raises
    ------
    GGEURError
        Flower is missing, or the run failed.
    KeyboardInterrupt
        SIGTERM has arrived, or Ctrl-C.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with shown_on_console(cfg.verbose > 0 if level is None else level):
        folder = run_locally(cfg)
    print(results_table(read_results(folder)))
    return 0
