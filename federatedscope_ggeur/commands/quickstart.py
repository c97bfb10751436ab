"""``ggeur quickstart``: runs a bundled study and prints its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from federatedscope_ggeur.commands import command_parser
from federatedscope_ggeur.commands.study import add_study_options, run_study

if TYPE_CHECKING:
    from federatedscope_ggeur.reporting.comparison import Comparison

STUDY = "quickstart_study"


def quickstart(arguments: Sequence[str]) -> int:
    """Run the bundled study and print its table; returns the status of `study`."""
    parser = command_parser(
        "quickstart",
        f"Runs the bundled study {STUDY}: real digits in four domains, with ten "
        "seeds and without network access. A second call prints the table of the "
        "finished runs.",
    )
    add_study_options(parser)
    options = parser.parse_intermixed_args(arguments)
    return run_study(STUDY, options, _overviews)


def _overviews(found: Comparison) -> str:
    from federatedscope_ggeur.reporting.comparison.sheets import overview_sheet
    from federatedscope_ggeur.reporting.comparison.text import sheet_text

    parts = [sheet_text(overview_sheet(table)) for table in found.tables]
    return "\n\n".join(parts) + "\n"
