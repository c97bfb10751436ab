"""``ggeur compare``: prints runs side by side in the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from federatedscope_ggeur.commands import command_parser


def compare(arguments: Sequence[str]) -> int:
    """Print a table that compares runs, without writing files."""
    parser = command_parser(
        "compare",
        "Runs that differ only in their seeds make one row. Other rows are compared "
        "with the first one. `report` writes the same as files, with figures.",
    )
    add_choices(parser, "RUN")
    options = parser.parse_args(arguments)
    # Imported here: refusing an option needs neither scipy nor matplotlib.
    from federatedscope_ggeur.reporting.comparison import Comparison

    found = Comparison.of(options.folders, options.baseline)
    print(found.to_text(), end="")
    return 0


def add_choices(parser: argparse.ArgumentParser, name: str) -> None:
    """Add options for the runs and their baseline to a parser."""
    parser.add_argument(
        "folders",
        nargs="+",
        metavar=name,
        help="a folder that contains runs or studies",
    )
    parser.add_argument(
        "--baseline",
        metavar="ROW",
        help="the baseline with which rows are compared: a row, a point of an axis, "
        "or AXIS=POINT (default: the study's, else the first)",
    )
