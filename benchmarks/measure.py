"""What the benchmarks share: interleaved timing, ratios, a table and its CSV."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import median, stdev

import torch

from federatedscope_ggeur.reporting.tables import text_table


def interleave(
    functions: Mapping[str, Callable[[], object]], repeats: int
) -> dict[str, list[float]]:
    """CPU seconds of each function, all called in turn `repeats` times on one thread.

    CPU time counts page faults, but not the waits for other processes.
    """
    from threadpoolctl import threadpool_limits  # here: some benchmarks need it not

    torch.set_num_threads(1)
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    with threadpool_limits(1):
        for function in functions.values():
            function()
        for _ in range(repeats):
            for name, function in functions.items():
                started = time.process_time()
                function()
                seconds[name].append(time.process_time() - started)
    return seconds


def ratio(over: Sequence[float], under: Sequence[float]) -> str:
    """Ratio of medians, with smallest and largest ratio of a single repeat."""
    each = [a / b for a, b in zip(over, under)]
    middle = median(over) / median(under)
    return f"{middle:.3g} ({min(each):.3g}-{max(each):.3g})"


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; nan of a single value."""
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else float("nan")


def report(rows: Sequence[Mapping[str, object]], path: str | None = None) -> None:
    """Print rows as a table; write them to the CSV file `path`, if given."""
    header = list(rows[0])
    lines = [header, *([str(row[name]) for name in header] for row in rows)]
    print(*text_table(lines, left=range(len(header))), sep="\n")
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(lines)
