"""All files of a run's folder that come from its results."""

from __future__ import annotations

import os
from pathlib import Path

from federatedscope_ggeur.reporting.files import write_atomically
from federatedscope_ggeur.reporting.plots import draw_curve
from federatedscope_ggeur.reporting.results import Results
from federatedscope_ggeur.reporting.tables import metrics_csv


def write_run(folder: str | os.PathLike, results: Results) -> None:
    """Write ``results.json``, ``metrics.csv`` and ``curve.png`` into `folder`.

    Each file is written atomically, results.json first. An earlier state of the same
    run is replaced, so a run may write as it goes.

    Raises
    ------
    DataError
        If the results hold a value that JSON has no form for; nothing is written.
    ConfigError
        If a file cannot be written.
    """
    folder = Path(folder)
    write_atomically(folder / "results.json", results.to_json())
    write_atomically(folder / "metrics.csv", metrics_csv(results))
    draw_curve(results, folder / "curve.png")
