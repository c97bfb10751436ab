"""The rooms that all others stand on."""

import io
import itertools
import logging
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from own_process import python

from federatedscope_ggeur import files
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.machine import peak_memory, torch_threads, usable_cores
from federatedscope_ggeur.progress import (
    Progress,
    above_bars,
    bytes_text,
    duration_text,
    no_progress,
)
from federatedscope_ggeur.rng import derive_seed, numpy_generator, torch_generator

# Seeds depend on every part of the key, and on nothing else.


def test_seeds_are_the_same_on_every_machine():
    # From blake2b, which is specified to the byte: a change here changes every result.
    assert derive_seed(0) == 365213108179586954
    assert derive_seed(12345, 3, "noise", 7) == 2613584959646821422


def test_every_key_has_its_own_seed():
    parts = [0, 1, -1, 10, 12, 100, 123, "", "1", "noise", "cut", "1;i1:1", ":", ";"]
    keys = [key for n in range(1, 4) for key in itertools.product(parts, repeat=n)]
    keys = [key for key in keys if not isinstance(key[0], str)]
    seeds = {derive_seed(*key) for key in keys}
    assert len(seeds) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_kinds_of_integers_do_not_matter():
    plain = derive_seed(3, 7)
    assert derive_seed(np.int64(3), np.int32(7)) == plain
    assert derive_seed(torch.tensor(3).item(), torch.tensor(7)) == plain


def test_generators_draw_the_same_however_much_was_drawn_before():
    def draw(*key):
        return (
            torch.randn(5, generator=torch_generator(*key)).tolist(),
            numpy_generator(*key).normal(size=5).tolist(),
        )

    first = draw(1, "noise", 2)
    torch.randn(100)
    np.random.default_rng(0).normal(size=100)
    torch.manual_seed(99)
    assert draw(1, "noise", 2) == first
    others = [draw(1, "noise", 3), draw(2, "noise", 2), draw(1, "cut", 2), draw(1)]
    for torch_numbers, numpy_numbers in others:
        assert torch_numbers != first[0]
        assert numpy_numbers != first[1]


def test_drawing_leaves_the_global_generators_alone():
    before = torch.get_rng_state()
    torch.randn(3, generator=torch_generator(0, "x"))
    assert torch.equal(torch.get_rng_state(), before)


# One file, written whole or not at all.


@pytest.mark.parametrize(
    ("data", "raw"), [(b"\x00\r\n", b"\x00\r\n"), ("ä\n", b"\xc3\xa4\n"), ("", b"")]
)
def test_writes_and_replaces_exactly_these_bytes(tmp_path, data, raw):
    path = tmp_path / "file"
    path.write_text("before")
    write_atomically(path, data)
    assert path.read_bytes() == raw
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    def fail(*_):
        raise OSError("disk full")

    path = tmp_path / "file"
    path.write_text("before")
    monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(ConfigError, match=rf"{re.escape(str(path))}.*disk full"):
        write_atomically(path, "after")
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_a_private_file_is_so_before_it_has_its_name(tmp_path, monkeypatch):
    seen = []
    replace = os.replace

    def look(source, target):
        seen.append(stat.S_IMODE(os.stat(source).st_mode))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    write_atomically(tmp_path / "secret", b"x", mode=0o600)
    assert seen == [0o600]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_file_is_as_readable_as_any_other(tmp_path):
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "atomic", "")
    modes = {stat.S_IMODE(os.stat(tmp_path / n).st_mode) for n in ("plain", "atomic")}
    assert len(modes) == 1


@pytest.mark.skipif(os.name != "posix", reason="devices are files on POSIX")
def test_a_pipe_and_a_device_are_written_to_and_stay(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    (tmp_path / "link").symlink_to("/dev/null")
    write_atomically(tmp_path / "link", "nowhere")
    assert (tmp_path / "link").is_symlink()


def test_standard_output_is_written_to_where_it_is_a_file(tmp_path):
    program = (
        "from federatedscope_ggeur.files import write_atomically\n"
        "write_atomically('/dev/stdout', 'text')"
    )
    with open(tmp_path / "out", "wb") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "text"
    assert Path("/dev/stdout").is_symlink()


# What this process may use of its machine, and what it has used.


def test_the_peak_is_at_least_what_is_held():
    held = bytearray(50_000_000)
    assert peak_memory() > len(held)


def test_cores_are_those_that_the_process_may_use():
    assert 1 <= usable_cores() <= os.cpu_count()
    if hasattr(os, "sched_setaffinity"):
        script = (
            "import os; os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1]); "
            "from federatedscope_ggeur.machine import usable_cores; "
            "print(usable_cores())"
        )
        assert python("-c", script).stdout == "1\n"


def test_torch_has_its_threads_again():
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


# Long work off a terminal: lines at times; on one, a bar.


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


@examples(60)
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


def test_bytes_have_three_digits_and_durations_two():
    sizes = {0: "-", 999: "999 B", 1000: "1 kB", 12_345_678: "12.3 MB", 2e9: "2 GB"}
    assert {number: bytes_text(number) for number in sizes} == sizes
    times = {
        1e-5: "0.00 s",
        0.0123: "0.012 s",
        99: "99 s",
        600: "10 min",
        7200: "2.0 h",
    }
    assert {seconds: duration_text(seconds) for seconds in times} == times
