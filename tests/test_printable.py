"""Text of others becomes printable, and so does whatever reaches a shared sink.

The rooms that all others stand on.
"""

import html
import io
import itertools
import json
import logging
import os
import pickle
import re
import stat
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import examples
from foreign_text import FORGED, ORDINARY, WORST, foreign, hidden_in
from hypothesis import given
from hypothesis import strategies as st
from own_process import PATIENCE, ROOT, python

from federatedscope_ggeur import errors, files
from federatedscope_ggeur.errors import (
    ConfigError,
    DataError,
    GGEURError,
    MessageError,
    StatisticsError,
    did_you_mean,
    listed,
    name_settings,
    of_client,
    setting,
    without_folders,
)
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.machine import peak_memory, torch_threads, usable_cores
from federatedscope_ggeur.printable import (
    LINE,
    NAME,
    Lines,
    agrees,
    as_html,
    file_name,
    get_logger,
    printable,
    say,
)
from federatedscope_ggeur.progress import (
    Progress,
    above_bars,
    bytes_text,
    duration_text,
    no_progress,
    phase,
    tick,
)
from federatedscope_ggeur.rng import derive_seed, numpy_generator, torch_generator

BAD_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(foreign)
def test_nothing_hidden_is_left_and_no_line_is_added(text):
    shown = printable(text)
    assert not {unicodedata.category(c) for c in shown} & BAD_CATEGORIES
    assert len(shown.splitlines()) <= 1
    assert len(shown) <= NAME
    shown.encode()
    assert printable(shown) == shown


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_names_stay_as_they_are(name):
    assert printable(name) == name


def test_what_was_hidden_can_be_seen():
    assert printable("a\nb\x1b[2J\u202ec\ud800\u3164") == (
        r"a\nb\x1b[2J\u202ec\ud800\u3164"
    )
    assert printable("x" * 100_000).endswith("... (100000 characters)")
    assert printable("\x1b" * 250).endswith("... (250 characters)")


def log_of(message: str, *values, **more) -> str:
    """What a handler that knows nothing of this package writes."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = get_logger("federatedscope_ggeur.test_printable")
    logger.addHandler(handler)
    try:
        logger.error(message, *values, **more)
    finally:
        logger.removeHandler(handler)
    return text.getvalue()


@examples(40)
@given(foreign)
def test_a_record_is_one_line_whatever_it_holds(text):
    for written in (
        log_of("client %d (domain %s) has joined", 3, text),
        log_of("%s", DataError(f"'{text}' is no domain")),
        log_of("%s", OSError(text)),
        log_of("domains %s of %s", [text], {text: text}),
        log_of(f"{text}"),
    ):
        assert written.count("\n") == len(written.splitlines()) == 1
        assert not hidden_in(written)
        written.encode()


def test_lines_of_our_own_stay():
    table = Lines(["AVG 1", f"a\n{FORGED}"])
    assert log_of("\n%s", table) == f"ERROR \nAVG 1\na\\n{FORGED}\n"
    wrong = ConfigError(Lines(["wrong settings:", f"  x\n{FORGED}: unknown"]))
    assert str(wrong) == f"wrong settings:\n  x\\n{FORGED}: unknown"
    assert log_of("%s", wrong) == f"ERROR {wrong}\n"
    assert log_of("%d of %.1f, %s", 1, 2.0, None) == "ERROR 1 of 2.0, None\n"
    assert DataError(Lines([*wrong.lines, "more"])).lines[-1] == "more"
    assert pickle.loads(pickle.dumps(wrong)).lines == wrong.lines


def test_a_traceback_has_no_line_that_passes_for_one_of_the_log():
    try:
        raise ValueError(f"x\n{FORGED}\x1b")
    except ValueError:
        written = log_of("it failed", exc_info=True)
    first, *others = written.splitlines()
    assert first == "ERROR it failed"
    assert others
    assert all(line.startswith("  ") for line in others)
    assert not hidden_in(written)


@given(foreign)
def test_an_error_is_one_line(text):
    for error in (
        ConfigError(f"'{text}' is taken"),
        DataError(text),
        MessageError(text, field="domain", sender=text),
    ):
        assert len(str(error).splitlines()) <= 1
        assert not hidden_in(str(error))
        assert len(str(error)) <= LINE


@given(foreign)
def test_the_terminal_has_a_line_for_each(text):
    shown = io.StringIO()
    say(f"client 1: {text}", f"client 2: {text}", file=shown)
    assert shown.getvalue().count("\n") == len(shown.getvalue().splitlines()) == 2
    assert not hidden_in(shown.getvalue())


@given(foreign)
def test_a_page_gets_no_tag(text):
    shown = as_html(text)
    assert not set(shown) & set("<>\"'")
    assert html.unescape(shown) == printable(text, LINE)
    assert not hidden_in(shown)


@given(foreign)
def test_a_file_stays_in_its_folder(text):
    name = file_name(text)
    assert os.path.basename(name) == name
    assert name not in ("", ".", "..")
    assert not name.startswith(".")
    assert len(f"{name}.svg".encode()) < 255
    assert not hidden_in(name)


@pytest.mark.parametrize("text", WORST)
def test_progress_names_what_it_follows(text, caplog, capsys):
    with caplog.at_level(logging.INFO), Progress(1, "image", what=text) as progress:
        progress.step(note=text)
    (line,) = caplog.messages
    assert len(line.splitlines()) == 1
    assert not hidden_in(line + capsys.readouterr().err)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_output_in_any_encoding_is_whole(encoding):
    program = (
        "from federatedscope_ggeur.printable import *\n"
        "show_all_characters()\n"
        "say('Füchse 日本')\n"
        "say_json(['Füchse', '日本', '\U0001f98a', '\\u202e'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)},
        capture_output=True, check=True, timeout=PATIENCE, encoding=encoding,
    )  # fmt: skip
    first, _, rest = done.stdout.partition("\n")
    assert json.loads(rest) == ["Füchse", "日本", "\U0001f98a", "\u202e"]
    assert first.startswith("F")


# Errors and what they call the settings they speak of.


@pytest.mark.parametrize("error", [ConfigError, DataError, StatisticsError])
def test_every_error_is_one_of_ours_and_of_a_value(error):
    assert issubclass(error, GGEURError)
    assert issubclass(error, ValueError)


def test_a_refused_message_names_its_sender_and_field():
    error = MessageError("holds NaN", field="params", sender="client 3")
    assert error.problem == "holds NaN"
    assert error.field == "params"
    assert error.sender == "client 3"
    assert str(error) == "message from client 3 refused: field 'params': holds NaN"
    assert "unknown sender" in str(MessageError("cut off", field="header"))


def test_a_setting_is_called_by_its_key_once_that_is_known(monkeypatch):
    monkeypatch.setattr(errors, "_KEYS", {})
    assert setting("quorum") == "quorum"
    name_settings({"quorum": "my.quorum"})
    assert setting("quorum") == "my.quorum"
    assert setting("other") == "other"


def test_of_many_names_some_are_listed():
    assert listed([], 2) == ""
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"


def test_a_client_is_named_once():
    assert of_client(2, "no rows") == "client 2: no rows"
    assert of_client(2, "client 2: no rows") == "client 2: no rows"
    assert of_client(2, "client 21: no rows") == "client 2: client 21: no rows"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("fedporx", "fedprox"),
        ("LDA", "lda"),
        ("lr", "train.optimizer.lr"),
        ("optimizer.lr", "train.optimizer.lr"),
        ("name", ""),  # two settings end in it
        ("zzzz", ""),
        ("", ""),
        (3, ""),
        (None, ""),
    ],
)
def test_the_nearest_known_name_is_asked_for(given, near):
    known = ["fedprox", "lda", "train.optimizer.lr", "a.b.name", "c.d.name", 7]
    wanted = f"; did you mean {near}?" if near else ""
    assert did_you_mean(given, known, 0.75) == wanted


TOLD = {
    "'/home/alice/data/x.npz': has NaN": "'x.npz': has NaN",
    "[Errno 2] No file: '/home/al ice/x y.npz'": "[Errno 2] No file: 'x y.npz'",
    "in /srv/secret/train.npz, row 3": "in train.npz, row 3",
    "data.root: /home/alice/data": "data.root: data",
    "the folder '/home/alice/data/'": "the folder 'data'",
    "my_plugin (/home/alice/p.py, line 3)": "my_plugin (p.py, line 3)",
    "~/data/x.npz and file:///home/alice/y": "x.npz and y",
    r"'C:\Users\alice\x.npz'": "'x.npz'",
}


@pytest.mark.parametrize("text", TOLD)
def test_a_peer_is_not_told_folders(text):
    left = without_folders(text)
    assert left == TOLD[text] == without_folders(left)


@pytest.mark.parametrize(
    "text",
    ["https://example.org/a/b", "and/or, N/A, 1/2, a / b", "'data/x.npz'", "it's '/'"],
)
def test_text_that_is_no_absolute_path_stays(text):
    assert without_folders(text) == text


@pytest.mark.parametrize(
    ("typed", "agreed"), [("y\n", True), (" Y \n", True), ("yes\n", False), ("", False)]
)
def test_only_y_agrees_and_the_end_of_the_input_does_not(typed, agreed, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert agrees("Is it so?") == agreed


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


class KeptLines(logging.Handler):
    """Keeps what the package logs."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def followed(seconds, total=None, done=0, note=""):
    """The lines of parts that take so many seconds each, and when they were told."""
    clock, heard = Clock(), KeptLines()
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


def test_a_client_without_rows_is_no_step(caplog):
    with caplog.at_level(logging.INFO), phase("trying heads", 3):
        for rows in (0, 2, 0, 1):
            tick(rows)
    assert [line.partition(":")[2][:12] for line in caplog.messages] == [
        " row 2 of 3:", " row 3 of 3:",
    ]  # fmt: skip


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
