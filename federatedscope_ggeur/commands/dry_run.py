"""``ggeur --cfg FILE --dry-run``: forecasts the bytes, memory and time of a run."""

from __future__ import annotations

from collections.abc import Mapping

from federatedscope_ggeur.cfg_ggeur.start_notes import privacy_of
from federatedscope_ggeur.data import Pending, find_pending
from federatedscope_ggeur.engines.forecast import Forecast, forecast, set_up
from federatedscope_ggeur.engines.run import Run, what_to_embed
from federatedscope_ggeur.federation.exchanges.base import Spent, due_exchanges
from federatedscope_ggeur.printable import say
from federatedscope_ggeur.progress import bytes_text, duration_text, phase
from federatedscope_ggeur.reporting import privacy_line
from federatedscope_ggeur.reporting.tables import text_table

from .console import shown_on_console

#: Up to so many clients have a line each; more are summed up.
_MOST_CLIENTS = 12


def show_forecast(cfg) -> int:
    """Print the bytes, memory and time that the run of `cfg` will take.

    Nothing is written. If images are not in the embedding cache, only their number is
    printed, with the approximate time to embed them.

    Raises
    ------
    GGEURError
        An error that would stop the run.
    """
    with shown_on_console("warning"):
        data_type, root, encoding, own = what_to_embed(cfg)
        pending = find_pending(data_type, root, encoding, own)
        if pending is not None:
            say(*_about_images(pending, encoding.cache))
            return 0
        run = set_up(cfg)
        privacy = privacy_line(privacy_of(run.cfg))
        say(*run.describe(), *_about_rows(run), privacy)
        clients = len(run.held.numbers)
        for part in due_exchanges(run.settings.demands):
            say(*part.forecast(run.settings.role, clients))
        run.engine.phase = phase
        costs = forecast(run)
        say(*_about_bytes(costs, run), *_about_memory(costs, run), *_about_time(costs))
    return 0


def _about_images(pending: Pending, cache: str) -> list[str]:
    lines = [
        f"{pending.images} of {pending.total} images are not in the cache {cache}: a "
        "run embeds them first"
    ]
    if not pending.has_weights:
        lines.append(
            "the encoder's weights are not on this machine, and a dry run downloads "
            "nothing"
        )
    return [
        *lines,
        "embed them first (ggeur embed --cfg FILE); then a dry run can forecast "
        "the rest",
    ]


def _about_rows(run: Run) -> list[str]:
    """Lines about training rows, one for each client if there are few clients."""
    clients, held = run.data.clients, run.held
    if len(clients) <= _MOST_CLIENTS:
        return [
            f"client {c.number} ({c.domain}): {len(c.train)} rows of "
            f"{len(c.train.labels.unique())} classes to train on"
            + ("" if c.number in held.numbers else ", is only scored")
            for c in clients
        ]
    rows = {client.number: len(client.train) for client in clients}
    return [f"rows of a client: {_spread(rows)}"]


def _about_bytes(costs: Forecast, run: Run) -> list[str]:
    cells: list[tuple[str, str, str]] = [("bytes", "up", "down")]
    if costs.pooled is not None:
        title = f"rows of {costs.pooled.clients} clients, pooled"
        cells.append((title, bytes_text(costs.pooled.bytes_up), bytes_text(0)))
    cells += _cells("round 0", costs.round0)
    many = f"{costs.drawn} client{'s' if costs.drawn > 1 else ''}"
    cells += _cells(f"a round, of {many}", costs.round)
    cells += _cells("calibration", costs.calibration)
    most = "at most " if run.cfg.early_stop.patience else ""
    title = f"the run, {most}{costs.rounds} rounds, {costs.scored} scored"
    cells.append((title, bytes_text(costs.total.up), bytes_text(costs.total.down)))
    return text_table(cells)


def _cells(title: str, phases: Mapping[str, Spent]) -> list[tuple[str, str, str]]:
    if not phases:
        return []
    lines = [
        (f"  {name.replace('_', ' ')}", bytes_text(one.up), bytes_text(one.down))
        for name, one in phases.items()
    ]
    return [(title, "", ""), *lines]


def _about_memory(costs: Forecast, run: Run) -> list[str]:
    lines = []
    if costs.rows:
        limit = run.settings.memory_limit
        fate = "sets stay in memory"
        if not costs.same_every_round:
            fate = "sets are drawn anew in every round"
        elif costs.set_bytes > limit:
            fate = "sets beyond this limit are drawn anew every round"
        lines.append(
            f"training sets: rows of a client {_spread(costs.rows)}; "
            f"{bytes_text(costs.set_bytes)} of ggeur.memory_limit {bytes_text(limit)}, "
            f"{fate}"
        )
    if costs.peak_bytes is not None:
        lines.append(
            f"memory of the process: about {bytes_text(costs.peak_bytes)} at its peak"
        )
    return lines


def _about_time(costs: Forecast) -> list[str]:
    times = costs.seconds
    parts = [f"round 0 {duration_text(times.round0)}"]
    parts += [f"of it {duration_text(s)} {what}" for what, s in times.doing.items()]
    if costs.rounds:
        parts.append(
            f"{costs.rounds} rounds {duration_text(times.rounds)}, at "
            f"{1e3 * times.mini_batch:.2g} ms a mini-batch"
        )
    if times.calibration:
        parts.append(f"calibration {duration_text(times.calibration)}")
    return [f"time: about {duration_text(times.total)} ({'; '.join(parts)})"]


def _spread(rows: Mapping[int, int]) -> str:
    """A text with the smallest and largest number, their clients, and the median."""
    ordered = sorted(rows, key=lambda number: (rows[number], number))
    few, middle, many = ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]
    return (
        f"{rows[few]} (client {few}) to {rows[many]} (client {many}), median "
        f"{rows[middle]}"
    )
