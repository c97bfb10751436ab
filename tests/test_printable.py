"""Text of others becomes printable, and so does whatever reaches a shared sink."""

from __future__ import annotations

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
from foreign_text import FORGED, ORDINARY, WORST, foreign, hidden_in
from hypothesis import given, settings
from own_process import PATIENCE, ROOT

from federatedscope_ggeur.errors import ConfigError, DataError, MessageError
from federatedscope_ggeur.printable import (
    LINE,
    NAME,
    Lines,
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


@pytest.mark.slow
@settings(max_examples=40)
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
