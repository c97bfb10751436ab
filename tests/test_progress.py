"""Long work off a terminal: lines at times; on one, a bar."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.progress import (
    Progress,
    above_bars,
    bytes_text,
    duration_text,
    no_progress,
)


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Lines(logging.Handler):
    """Keeps what the package logs."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def followed(seconds, total=None, done=0, note=""):
    """The lines of parts that take so many seconds each, and when they were told."""
    clock, heard = Clock(), Lines()
    logger = logging.getLogger("federatedscope_ggeur")
    level, told = logger.level, []
    logger.addHandler(heard)
    logger.setLevel(logging.INFO)
    try:
        total = done + len(seconds) if total is None else total
        with Progress(total, "round", done=done, clock=clock) as progress:
            for taken in seconds:
                clock.now += taken
                progress.step(note=note)
                told += [clock.now] * (len(heard.lines) - len(told))
    finally:
        logger.removeHandler(heard)
        logger.setLevel(level)
    return heard.lines, told


def test_a_short_run_has_its_first_and_last_line_alone():
    lines, _ = followed([0.01] * 50, note="AVG 60.00%")
    assert len(lines) == 2
    assert lines[0].startswith("round 1 of 50: AVG 60.00%, about 0.49 s left, ")
    assert lines[1].startswith("round 50 of 50: AVG 60.00%, in 0.5 s, ")
    assert all(re.search(r", [\d.]+ MB of memory$|, [\d.]+ GB of memory$", one)
               for one in lines)  # fmt: skip


def test_one_part_is_told_once():
    lines, _ = followed([3.0])
    assert len(lines) == 1
    assert lines[0].startswith("round 1 of 1: in 3 s")


def test_pauses_grow_from_two_seconds_to_a_minute():
    _, told = followed([0.5] * 2000)
    pauses = [later - before for before, later in zip(told, told[1:])]
    assert pauses[:6] == [2, 4, 8, 16, 32, 60]
    assert set(pauses[6:-1]) == {60}
    assert pauses[-1] <= 60


@settings(max_examples=60)
@given(st.lists(st.floats(0.001, 300), min_size=1, max_size=60))
def test_nobody_waits_longer_than_a_minute_and_a_part(seconds):
    lines, told = followed(seconds)
    assert told[0] == 100 + seconds[0]
    assert lines[-1].startswith(f"round {len(seconds)} of {len(seconds)}")
    pauses = [later - before for before, later in zip(told, told[1:])]
    assert all(pause <= 60 + max(seconds) + 1e-9 for pause in pauses)
    # Six pauses before the longest one, the first, the last, and one for a minute.
    assert len(lines) <= 8 + sum(seconds) / 60


def test_parts_that_were_there_before_say_nothing_of_the_time_left():
    lines, _ = followed([10.0, 10.0], total=100, done=90)
    assert lines[0].startswith("round 91 of 100: about 90 s left")
    assert lines[1].startswith("round 92 of 100: about 80 s left")


@pytest.mark.parametrize("hidden", [False, True])
def test_a_terminal_has_a_bar_unless_it_is_hidden(monkeypatch, hidden):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    if hidden:
        with no_progress(), Progress(2, "image", "art") as progress:
            progress.step(2)
        assert terminal.getvalue() == ""
        return
    with Progress(2, "image", "art") as progress:
        with above_bars(terminal):
            terminal.write("a warning\n")
        progress.step(2, "a note")
    shown = terminal.getvalue()
    assert re.search(r"(^|[\r\n]) *\ra warning\n", shown), "the bar was cleared first"
    assert "2/2" in shown
    assert "image/s, a note" in shown


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "-"), (999, "999 B"), (1000, "1 kB"), (12_345_678, "12.3 MB"), (2e9, "2 GB")],
)
def test_bytes_have_three_digits(number, text):
    assert bytes_text(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1e-5, "0.00 s"),
        (0.0123, "0.012 s"),
        (99, "99 s"),
        (600, "10 min"),
        (7200, "2.0 h"),
    ],
)
def test_durations_have_two_digits(seconds, text):
    assert duration_text(seconds) == text
