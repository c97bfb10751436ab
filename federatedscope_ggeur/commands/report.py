"""``federatedscope-ggeur report``: tables and figures of any number of runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.commands import command_parser
from federatedscope_ggeur.commands.compare import add_choices


def report(arguments: Sequence[str]) -> int:
    """Write a report of some runs into a new folder; print its table and its files."""
    options = _parser().parse_args(arguments)
    # Imported here: to complain of an option takes neither scipy nor matplotlib.
    from federatedscope_ggeur.reporting.comparison import Comparison
    from federatedscope_ggeur.reporting.comparison.figures import figures
    from federatedscope_ggeur.reporting.comparison.folder import (
        check_formats,
        default_folder,
        report_files,
        write_report,
    )

    formats = list(dict.fromkeys(options.format.split(",")))
    check_formats(formats)
    found = Comparison.of(options.folders, options.baseline, options.target)
    pictures = figures(found, options.width)
    files = report_files(found, pictures, formats)
    place = options.out
    folder = default_folder(options.folders[0]) if place is None else Path(place)
    write_report(folder, files)
    print(found.to_text())
    for name in files:
        print(folder / name)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "report",
        "Runs that differ by their seeds alone are one row. The tables are written as "
        "Markdown, CSV, LaTeX and one HTML page with all figures.",
    )
    add_choices(parser, "FOLDER")
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="where the files go, a new folder (default: report below the first one)",
    )
    parser.add_argument(
        "--target",
        metavar="AVG",
        type=float,
        help="count the rounds to this AVG, a fraction such as 0.8 (default: what a "
        "row's baseline ends with, rounded down to whole percents)",
    )
    parser.add_argument(
        "--format",
        metavar="FORMATS",
        default="svg,png",
        help="of the figures' files: svg, pdf and png, with commas (default: svg,png)",
    )
    parser.add_argument(
        "--width",
        choices=("one", "two"),
        default="two",
        help="columns that figures are as wide as: 3.35 or 6.9 inches (default: two)",
    )
    return parser
