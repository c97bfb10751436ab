"""Show the progress of long work: a bar on a terminal, lines of the log elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tqdm import tqdm

from federatedscope_ggeur.machine import peak_memory
from federatedscope_ggeur.printable import get_logger, printable

logger = get_logger("federatedscope_ggeur")
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
_PREFIXES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_hidden: ContextVar[bool] = ContextVar("hidden", default=False)
_tick: ContextVar[Callable[[int], None] | None] = ContextVar("tick", default=None)


class Progress:
    """Shows the progress of work that has `total` parts. Use it in a ``with`` block.

    On a terminal it shows a bar. Elsewhere it writes lines to the package's log: after
    the first part, after the last, and in between at pauses that grow from two seconds
    to a minute. Each line gives the parts that are done, the time that is left, and the
    peak memory of the process.

    Parameters
    ----------
    total, done : int
        Number of all parts, and of those that were done before.
    unit : str
        The name of a part, e.g. ``"rounds"``.
    what : str
        The name of the work, if the unit alone does not explain it.
    clock : callable
        Returns seconds that never decrease.
    """

    def __init__(
        self,
        total: int,
        unit: str,
        what: str = "",
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.total, self.done, self._before = total, done, done
        what = printable(what)
        self._name = f"{what}: {unit}" if what else unit
        self._clock, self._pause = clock, _FIRST_PAUSE
        # tqdm's None: shown on a terminal only.
        off = True if _hidden.get() else None
        self._bar = tqdm(total=total, initial=done, unit=unit, desc=what, disable=off)
        self.begin()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def begin(self) -> None:
        """Start the clock, because the first part begins now. Earlier time does not
        count."""
        self._begun = self._told = self._clock()

    def note(self, text: str) -> None:
        """Show what happens on the bar, if there is one."""
        self._bar.set_postfix_str(printable(text))

    def step(self, parts: int = 1, note: str = "") -> None:
        """Count `parts` more parts as done; `note` describes the last one."""
        if not parts:
            return
        first, self.done = self.done == self._before, self.done + parts
        self._bar.update(parts)
        if note:
            self.note(note)
        now, last = self._clock(), self.done >= self.total
        if self._bar.disable and (first or last or now - self._told >= self._pause):
            if not first:
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self._told = now
            logger.info("%s", self._line(note, now - self._begun))

    def _line(self, note: str, seconds: float) -> str:
        left = seconds / (self.done - self._before) * (self.total - self.done)
        if left > 0:
            note = f"{note}, " * bool(note) + f"about {duration_text(left)} left"
        elif self.done >= self.total:
            note = f"{note}, " * bool(note) + f"in {duration_text(seconds)}"
        peak = peak_memory()
        memory = "" if peak is None else f", {bytes_text(peak)} of memory"
        return f"{self._name} {self.done} of {self.total}: {note}{memory}"


@contextmanager
def no_progress() -> Iterator[None]:
    """Show no bar inside this block, even on a terminal."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


@contextmanager
def phase(what: str, total: int) -> Iterator[None]:
    """Show the progress of work on `total` rows inside this block, by `tick`."""
    with Progress(total, "row", what) as shown:
        token = _tick.set(shown.step)
        try:
            yield
        finally:
            _tick.reset(token)
        if shown.done < total:  # rows that needed no work
            shown.step(total - shown.done)


def tick(rows: int) -> None:
    """Count `rows` more rows of the phase that is shown, if there is one."""
    shown = _tick.get()
    if shown is not None:
        shown(rows)


@contextmanager
def above_bars(stream) -> Iterator[None]:
    """Let other code write to `stream` above a progress bar, so that the bar stays
    whole."""
    with tqdm.external_write_mode(file=stream):
        yield


def bytes_text(number: float) -> str:
    """A number of bytes as text with three digits, such as "1.5 MB" (1 MB = 10^6)."""
    for unit, name in _PREFIXES:
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:g} B" if number else "-"


def duration_text(seconds: float) -> str:
    """Seconds as text for a person, with two digits, such as "42 s" or "5 min"."""
    if seconds < 0.01:
        return f"{seconds:.2f} s"
    if seconds < 99.5:  # which two digits would write as 1e+02
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
