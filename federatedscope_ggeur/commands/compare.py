"""``ggeur compare``: runs side by side, in the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from federatedscope_ggeur.commands import command_parser


def compare(arguments: Sequence[str]) -> int:
    """Print the table of some runs; nothing is written."""
    parser = command_parser(
        "compare",
        "Runs that differ by their seeds alone are one row; the others are compared "
        "with the first one. `report` writes files and figures of the same.",
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
        help="a folder with a run, a study, or any number of them in it",
    )
    parser.add_argument(
        "--baseline",
        metavar="ROW",
        help="what rows are compared with: a row, a point of an axis, or AXIS=POINT "
        "(default: the study's, else the first)",
    )
