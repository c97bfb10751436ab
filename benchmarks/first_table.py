"""The README's first table: its commands, over seeds and two ways to divide the digits.

Each row of the table in README.md names the settings behind
``federatedscope-ggeur --cfg ggeur_quickstart.yaml``; they are read from there. The
number of seeds was set beforehand, and nothing is chosen on test rows.

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

README = Path(__file__).parents[1] / "README.md"
CONFIG = "ggeur_quickstart.yaml"
#: Of the quickstart itself, and another one.
DIVISIONS = {
    "label and domain skew": [],
    "domain skew": ["data.splitter", "domain", "data.splitter_args", "[]"],
}


def rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """Name and settings of each row of the table in `text`, a README."""
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
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    table = []
    for name, settings in rows(README.read_text(encoding="utf-8")):
        row: dict[str, object] = {"head": name, "settings": shlex.join(settings)}
        for division, more in DIVISIONS.items():
            found = scores([*settings, *more], args.seeds)
            error = standard_error(found)
            row[division] = f"{fmean(found):.1f} ({error:.1f})"
        table.append(row)
    report(table, args.csv)


if __name__ == "__main__":
    main()
