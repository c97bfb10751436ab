"""The table of docs/start.md: its commands over seeds, two ways to divide the digits.

Each row of the table names the settings behind ``ggeur --cfg ggeur_quickstart.yaml``;
they are read from there. The number of seeds was set beforehand, and nothing is chosen
on test rows.

    python benchmarks/first_table.py
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from measure import report, standard_error

from federatedscope_ggeur import run

PAGE = Path(__file__).parents[1] / "docs" / "start.md"
CONFIG = "ggeur_quickstart.yaml"
#: Of the quickstart itself, and another one.
DIVISIONS = {
    "domain skew": [],
    "label and domain skew": [
        *("data.splitter", "lds", "data.splitter_args", "[{'alpha': 0.1}]"),
    ],
}


def rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """Name and settings of each row of the table in `text`, a page."""
    table = text.split("<!-- table: first -->")[1].split("\n\n")[0]
    for line in table.strip().splitlines()[2:]:
        name, settings = (cell.strip() for cell in line.split("|")[1:3])
        yield name, shlex.split("".join(re.findall("`(.+)`", settings)))


def scores(settings: list[str], seeds: int) -> list[float]:
    """AVG in % for each seed."""
    runs = (run(CONFIG, overrides=[*settings, "seed", s]) for s in range(seeds))
    return [100 * results.final.avg for results in runs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    table = []
    for name, settings in rows(PAGE.read_text(encoding="utf-8")):
        row: dict[str, object] = {"head": name, "settings": shlex.join(settings)}
        for division, more in DIVISIONS.items():
            found = scores([*settings, *more], args.seeds)
            error = standard_error(found)
            row[division] = f"{fmean(found):.1f} ({error:.1f})"
        table.append(row)
    report(table, args.csv)


if __name__ == "__main__":
    main()
