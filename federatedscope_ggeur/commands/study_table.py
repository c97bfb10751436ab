"""Shows a study's progress, as a live table or as a line for each run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from federatedscope_ggeur.printable import LINE, printable
from federatedscope_ggeur.progress import duration_text
from federatedscope_ggeur.studies.jobs import Job
from federatedscope_ggeur.studies.workers import Event

_WAITING, _FAILED = "·", "failed"
_LINE_SECONDS = 2.0
_ABOVE_AND_BELOW = 6  # lines of a terminal beside the rows


class StudyTable:
    """Shows the progress of a study, as its `Watcher`.

    Parameters
    ----------
    name : str
        The study's name.
    workers : int
    quiet : bool
        Whether to show nothing.
    console : rich Console, optional
    """

    def __init__(
        self,
        name: str,
        workers: int,
        quiet: bool = False,
        console: Console | None = None,
    ):
        self._name, self._workers, self._quiet = name, workers, quiet
        self._console = console or Console()
        self._live: Live | None = None
        self._begin("", [])

    def __enter__(self) -> StudyTable:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(
                get_renderable=self._shown, console=self._console, refresh_per_second=4
            )
            self._live.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        if self._live is not None:
            self._live.__exit__(*exception)

    def _begin(self, stage: str, jobs: Sequence[Job]) -> None:
        self._stage, self._jobs = stage, list(jobs)
        self._cells = {job.name: _WAITING for job in jobs}
        self._started = self._told = time.monotonic()
        self._over = self._done_now = 0

    def begin(
        self, stage: str, jobs: Sequence[Job], over: Mapping[str, float | None]
    ) -> None:
        """Show that a stage begins."""
        self._begin(stage, jobs)
        self._over = len(over)
        self._cells.update({name: _percent(score) for name, score in over.items()})
        if over and self._live is None:
            self._say(f"{stage}: {len(over)} of {len(jobs)} runs are finished already")

    def tell(self, event: Event) -> None:
        """Show what has happened to a job."""
        name = event.job.name
        if event.kind == "rounds":
            self._cells[name] = f"{event.done}/{event.total}"
        elif event.kind in ("started", "killed"):
            self._cells[name] = "..." if event.kind == "started" else _WAITING
            if event.kind == "killed":
                self._say(f"{name}: {event.problem}; it starts again")
        else:
            self._over, self._done_now = self._over + 1, self._done_now + 1
            failed = event.kind == "failed"
            self._cells[name] = _FAILED if failed else _percent(event.score)
            problem = " ".join(event.problem.split())  # an error may have lines
            self._tell_over(name, problem if failed else "")

    def list(self, jobs: Sequence[Job], over: Mapping[str, float | None]) -> None:
        """Show which runs are finished."""
        for name in (job.name for job in jobs):
            said = _percent(over[name]) if name in over else "to do"
            self._console.print(_text(f"{said:>10}  {name}"))

    def _tell_over(self, name: str, problem: str) -> None:
        is_last = self._over == len(self._jobs)
        due = time.monotonic() - self._told > _LINE_SECONDS
        if self._live is None and (due or is_last or problem):
            left = "" if is_last else f"; {self._left()}"
            self._say(
                f"{self._heading()}: {name}: {problem or self._cells[name]}{left}"
            )
            self._told = time.monotonic()

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._console.print(_text(line), soft_wrap=True)

    def _heading(self) -> str:
        return f"{self._stage} {self._over} of {len(self._jobs)}"

    def _left(self) -> str:
        """The time that is left, estimated from the runs of this session."""
        if not self._done_now:
            return "time left: not known yet"
        passed = time.monotonic() - self._started
        seconds = passed / self._done_now * (len(self._jobs) - self._over)
        return f"about {duration_text(seconds)} left"

    def _shown(self) -> Group:
        processes = f"{self._workers} process{'es' if self._workers > 1 else ''}"
        heading = f"{self._name}, {self._heading()}, {self._left()}, {processes}"
        rows: dict[str, dict[int, str]] = {}
        for job in self._jobs:
            row = job.name.replace(f" / seed {job.cell.seed}", "")
            rows.setdefault(row, {})[job.cell.seed] = self._cells[job.name]
        seeds = sorted({job.cell.seed for job in self._jobs})
        table = Table(box=None, pad_edge=False)
        table.add_column("", overflow="fold")
        for seed in seeds:
            title = f"seed {seed}" if self._stage != "embedding" else "images"
            table.add_column(title, justify="right")
        most = max(self._console.height - _ABOVE_AND_BELOW, 3)
        # If there are too many rows, those with running cells come first.
        open_rows = [r for r, cells in rows.items() if _is_running(cells.values())]
        shown = list(rows)
        if len(rows) > most:
            others = [row for row in rows if row not in open_rows]
            kept = {*open_rows[:most], *others[: max(most - len(open_rows), 0)]}
            shown = [row for row in rows if row in kept]
        for row in shown:
            cells = (Text(rows[row].get(seed, "")) for seed in seeds)
            table.add_row(_text(row), *cells)
        more = len(rows) - len(shown)
        below = [Text(f"and {more} more rows")] if more else []
        return Group(_text(heading), table, *below)


def _text(line: str) -> Text:
    """A line of text for rich that is safe to print and has no markup."""
    return Text(printable(line, LINE))


def _is_running(cells) -> bool:
    return any("/" in cell or cell == "..." for cell in cells)


def _percent(score: float | None) -> str:
    """A score in percent; "done" for a run without a score."""
    return "done" if score is None else f"{100 * score:.2f}"
