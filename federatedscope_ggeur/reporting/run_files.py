"""The names of all files in a run's folder.

Whoever writes into a run's folder takes the name from here, so that a book that forgets
a client knows what to delete.
"""

from __future__ import annotations

RESULTS_FILE, HEAD_FILE = "results.json", "head.safetensors"
#: The folder of clients' own models.
OWN_FOLDER = "heads"
STRANGENESS_FILE = "strangeness.safetensors"
CLIENTS_FILE, METRICS_FILE, CURVE_FILE = "clients.csv", "metrics.csv", "curve.png"
STATUS_FILE, LOG_FILE = "status.json", "log.txt"
#: The same as status.json, for Prometheus.
METRICS_PROM = "status.prom"
#: The folder within a run's that holds statistics of single clients and domains. Only
#: its owner may open it.
PRIVATE = "private"
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
    STRANGENESS_FILE,
    CLIENTS_FILE,
    METRICS_FILE,
    CURVE_FILE,
    STATUS_FILE,
    METRICS_PROM,
    LOG_FILE,
    PRIVATE,
    *(f"checkpoint{end}" for end in CHECKPOINT_ENDS),  # of older releases
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
