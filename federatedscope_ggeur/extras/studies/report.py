"""``ggeur report``: writes tables and figures of runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.commands import add_options, command_parser
from federatedscope_ggeur.printable import say

_CHOICES = """
folders {name}...: a folder that contains runs or studies
--baseline ROW: the baseline with which rows are compared: a row, a point of an axis, or
  AXIS=POINT (default: the study's, else the first)
"""
_OPTIONS = """
--out FOLDER: a new folder for the files (default: the folder report in the first
  FOLDER)
--target AVG: count the rounds until this AVG, a fraction such as 0.8 (default: the
  final AVG of a row's baseline, rounded down to whole percents)
--paper TABLE: add the numbers of a table in the GGEUR paper, such as table7, and list
  how its setting differs (default: the table that the study names)
--format FORMATS: the formats of figures: svg, pdf and png, separated by commas
  (default: svg,png)
--style: the layout of table.tex: all tables of the report (default); paper: one for
  each data set as in a paper, with a column for each setting and standard errors; avg:
  one table of AVG over all data sets; with either comes page.tex, which prints table
  and figures
--width: the width of figures in columns of a paper: 3.35 or 6.9 inches (default: two)
"""


def report(arguments: Sequence[str]) -> int:
    """Write a report of runs into a new folder, and print its table and files."""
    options = _parser().parse_args(arguments)
    # Imported here: refusing an option needs neither scipy nor matplotlib.
    from federatedscope_ggeur.reporting.tables import read_formats

    from .comparison import Comparison
    from .comparison.beside import beside_paper, beside_papers
    from .comparison.figures import figures
    from .comparison.folder import (
        check_free,
        default_folder,
        report_files,
        write_report,
    )
    from .comparison.paper_table import as_document
    from .comparison.sheets import sheet_text

    formats = read_formats(options.format)
    if options.out is not None:
        check_free(Path(options.out))
    comparison = Comparison.of(options.folders, options.baseline, options.target)
    more = (
        beside_papers(comparison)
        if options.paper is None
        else beside_paper(comparison, options.paper)
    )
    texts: dict[str, str] = {}
    pictures = figures(comparison, options.width)
    if options.style != "report":
        texts["table.tex"] = comparison.to_latex(options.style)
        if form := next((one for one in ("pdf", "png") if one in formats), None):
            texts["page.tex"] = as_document(comparison.title, pictures, form)
    files = report_files(comparison, pictures, formats, more, texts)
    place = options.out
    folder = default_folder(options.folders[0]) if place is None else Path(place)
    write_report(folder, files)
    print(comparison.to_text())
    for sheet in more:
        print(sheet_text(sheet), end="\n\n")
    say(*(folder / name for name in files))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "report",
        "Runs that differ only in their seeds make one row. Tables are written as "
        "Markdown, CSV, LaTeX, and one HTML page with all figures.",
    )
    add_choices(parser, "FOLDER")
    add_options(
        parser,
        _OPTIONS,
        target={"type": float},
        format={"default": "svg,png"},
        style={"choices": ("report", "paper", "avg"), "default": "report"},
        width={"choices": ("one", "two"), "default": "two"},
    )
    return parser


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
    from .comparison import Comparison

    comparison = Comparison.of(options.folders, options.baseline)
    print(comparison.to_text(), end="")
    return 0


def add_choices(parser: argparse.ArgumentParser, name: str) -> None:
    """Add options for the runs and their baseline to a parser."""
    add_options(parser, _CHOICES.format(name=name))
