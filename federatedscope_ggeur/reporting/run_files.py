"""The names of all files in a run's folder.

Whoever writes into a run's folder takes the name from here, so that a book that forgets
a client knows what to delete.

Write a run's log.txt: all messages of the package, including debug messages.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from federatedscope_ggeur.errors import refusing

RESULTS_FILE, HEAD_FILE = "results.json", "head.safetensors"
#: The folder of clients' own models.
OWN_FOLDER = "heads"
METRICS_FILE, CURVE_FILE = "metrics.csv", "curve.png"
STATUS_FILE, LOG_FILE = "status.json", "log.txt"
#: The same as status.json, for Prometheus.
METRICS_PROM = "status.prom"
#: The folder within a run's that holds statistics of single clients and domains. Only
#: its owner may open it.
PRIVATE = "private"
#: A checkpoint's place in a run's folder, where ``federate.save_to`` names no file.
CHECKPOINT_FILE = f"{PRIVATE}/checkpoint"
#: What the names of a checkpoint's files end with: the server's, that of round 0, and
#: the folder of clients' own states.
ROUND0, OF_CLIENTS = ".round0", ".clients"
CHECKPOINT_ENDS = ("", ROUND0, OF_CLIENTS)
#: A run's settings, and those of a study's run.
CONFIG_FILE, CELL_FILE = "config.yaml", "cell.json"
REPORT_FOLDER = "report"

SETTINGS_FILES = (CONFIG_FILE, CELL_FILE)
#: All others, as patterns. Each depends on clients' statistics, or names clients and
#: their rows.
MADE_FILES = (
    RESULTS_FILE,
    HEAD_FILE,
    OWN_FOLDER,
    METRICS_FILE,
    CURVE_FILE,
    STATUS_FILE,
    METRICS_PROM,
    LOG_FILE,
    PRIVATE,
    # of older releases
    "clients.csv",
    "strangeness.safetensors",
    *(f"checkpoint{end}" for end in CHECKPOINT_ENDS),
    REPORT_FOLDER,
    f"{REPORT_FOLDER}_*",
    ".*.tmp",  # of a process that was killed while it wrote
    # of TensorBoard and FederatedScope
    "events.out.tfevents.*",
    "exp_print.log",
    "eval_results.log",
    "eval_results.raw",
    "eval_results.raw.gz",
    "system_metrics.log",
    "msg_handler.png",
)


_PACKAGE = logging.getLogger("federatedscope_ggeur")


class _LogFile(logging.FileHandler):
    """A log file. If the disk is full, lines are lost, but the run goes on."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def close(self) -> None:
        with suppress(OSError):
            super().close()


@contextmanager
def logging_to(path: str | os.PathLike) -> Iterator[None]:
    """Append everything that the package logs inside this block to a file.

    Raises
    ------
    ConfigError
        The file cannot be made.
    """
    with refusing(f"cannot write the log '{path}'"):
        file = _LogFile(path, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with handled_by(file):
        yield


@contextmanager
def handled_by(handler: logging.Handler) -> Iterator[None]:
    """Give a handler all messages of the package inside this block.

    This does not depend on what other handlers show.
    """
    before = _PACKAGE.level
    _PACKAGE.setLevel(logging.DEBUG)
    _PACKAGE.addHandler(handler)
    try:
        yield
    finally:
        _PACKAGE.setLevel(before)
        _PACKAGE.removeHandler(handler)
        handler.close()
