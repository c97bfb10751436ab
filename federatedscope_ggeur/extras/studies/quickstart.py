"""``ggeur quickstart``: who holds which classes, a table of methods, and a curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from federatedscope_ggeur.commands import command_parser
from federatedscope_ggeur.printable import say

from .command import add_study_options, run_study

if TYPE_CHECKING:
    from .comparison import Comparison
    from .comparison.table import Table
    from .plan import StudyPlan

STUDY = "quickstart_study"
CURVE = "curve.png"


def quickstart(arguments: Sequence[str]) -> int:
    """Run the bundled study and show what came out; returns the status of `study`."""
    parser = command_parser(
        "quickstart",
        f"Runs the bundled study {STUDY}: real digits in four domains, ten clients "
        "with unlike classes, ten seeds, without network access. Prints who holds "
        f"which classes, then a table of five ways, and draws {CURVE}. A second call "
        "shows the finished runs.",
    )
    add_study_options(parser)
    options = parser.parse_intermixed_args(arguments)
    return run_study(STUDY, options, _overviews, _show_clients)


def _show_clients(plan: StudyPlan) -> None:
    """Print which rows the clients hold on the first seed."""
    from federatedscope_ggeur.cfg_ggeur.load import load_config
    from federatedscope_ggeur.engines.run import load_federated_data
    from federatedscope_ggeur.extras.inspect.command import (
        CLIENT_TABLE_LEFT,
        MOST_CLIENTS,
        client_table,
    )
    from federatedscope_ggeur.federation.holdings import Holdings
    from federatedscope_ggeur.reporting.tables import text_table

    seed = plan.seeds[0]
    # FedAvg's cells are the clients' own division; other rows may pool the clients.
    cell = next(cell for cell in plan.cells(seed) if "FedAvg" in cell.labels.values())
    data = load_federated_data(load_config(cell.base, {**cell.settings, "seed": seed}))
    if len(data.clients) > MOST_CLIENTS:
        return
    held = Holdings.of(data.clients, data.num_classes)
    table = client_table(held, data.class_names)
    say(f"Who holds which classes, seed {seed} (the taller, the more rows):")
    say(*text_table(table, left=CLIENT_TABLE_LEFT), "")


def _overviews(comparison: Comparison, folder: Path) -> str:
    from .comparison.sheets import overview_sheet, sheet_text

    parts = [sheet_text(overview_sheet(table)) for table in comparison.tables]
    if _draw_curve(comparison, folder / CURVE):
        parts.append(f"accuracy by round: {folder / CURVE}")
    return "\n\n".join(parts)


def _draw_curve(comparison: Comparison, path: Path) -> bool:
    """Draw each row's accuracy by round, under a title that says what it shows.

    False if there is none, because no round was evaluated.
    """
    from federatedscope_ggeur.reporting.tables import write_figure

    from .comparison.figures import figures

    pictures = figures(comparison, names=["convergence"])
    if pictures:
        figure = pictures[0].figure
        figure.axes[0].title.set_text(curve_title(comparison.tables[0]))
        write_figure(path, figure, dpi=200)
    return bool(pictures)


def curve_title(table: Table) -> str:
    """What the curves of FedAvg and GGEUR show, with the numbers that they show."""
    from .comparison.figures import by_round

    rows = [table.rows.get(name) for name in ("FedAvg", "GGEUR")]
    fedavg, ggeur = (by_round(row) if row is not None else None for row in rows)
    if fedavg is None or ggeur is None:
        return "accuracy by round"
    first, last = ggeur.x[0], fedavg.x[-1]
    return (
        f"GGEUR has {ggeur.y[0]:.1f}% after round {first:.0f}, "
        f"FedAvg {fedavg.y[-1]:.1f}% after round {last:.0f}"
    )
