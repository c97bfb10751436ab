"""Text of others becomes printable, and so does whatever reaches a shared sink."""

import html
import io
import json
import logging
import os
import pickle
import subprocess
import sys
import unicodedata

import pytest
from examples import examples
from foreign_text import FORGED, ORDINARY, WORST, foreign, hidden_in
from hypothesis import given
from own_process import PATIENCE, ROOT

from federatedscope_ggeur import errors
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
from federatedscope_ggeur.progress import Progress

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
    assert (error.problem, error.field, error.sender) == (
        "holds NaN",
        "params",
        "client 3",
    )
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
