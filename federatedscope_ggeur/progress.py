"""Long work as a person follows it: a bar on a terminal, elsewhere lines at times."""

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


class Progress:
    """Follows work of `total` parts, in a ``with`` block.

    On a terminal it is a bar. Elsewhere it is lines of the package's log, by the clock
    and not by the number of parts: after the first part, then after pauses that grow
    from two seconds to a minute, and after the last. Each line says how far the work
    is, about how long is left and the most memory that the process has held.

    Parameters
    ----------
    total, done : int
        Parts in all, and those that were there before.
    unit : str
        What a part is.
    what : str
        What the parts are of, if that needs saying.
    clock : callable
        Seconds that only grow.
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
        """The parts begin now: what was before says nothing of how long they take."""
        self._begun = self._told = self._clock()

    def step(self, parts: int = 1, note: str = "") -> None:
        """So many more parts are done; `note` is what there is to say of the last."""
        first, self.done = self.done == self._before, self.done + parts
        self._bar.update(parts)
        if note:
            self._bar.set_postfix_str(printable(note))
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
    """Show no bar, whatever standard error is."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


@contextmanager
def above_bars(stream) -> Iterator[None]:
    """Write to `stream` so that a bar stays in one piece below what is written."""
    with tqdm.external_write_mode(file=stream):
        yield


def bytes_text(number: float) -> str:
    """Bytes with three digits (1 MB = 10^6)."""
    for unit, name in _PREFIXES:
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:g} B" if number else "-"


def duration_text(seconds: float) -> str:
    """Seconds for a person, with two digits."""
    if seconds < 0.01:
        return f"{seconds:.2f} s"
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
