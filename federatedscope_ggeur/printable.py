"""Make text from others printable before a person sees it.

Names, notes and errors may come from a peer, a results file or a folder. All text for a
person passes `printable` when it enters its sink: `get_logger` for the log, `say` for
the terminal, `as_html` for a page, `file_name` for a file or folder. CSV, Markdown and
LaTeX also have special characters of their own; `reporting` escapes those.
"""

from __future__ import annotations

import html
import json
import logging
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from io import TextIOWrapper
from numbers import Number
from typing import TextIO

#: The most characters that a name may have, and a line with names in it.
NAME, LINE = 300, 10_000
# Characters that Markdown interprets within a line, or at the start of a line.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$]|&(?=#?\w+;)|:(?=//)|(?<=www)\.)")
_LIST = re.compile(r"^(\d*)([-+.)])(?=\s|-|$)")
# Unicode calls them letters and marks, but nobody sees them.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_MOST_BYTES = 240  # file systems take 255, with an ending


def is_hidden(character: str) -> bool:
    """Whether a character is invisible or changes the text around it.

    Hidden are controls, line ends, bidi marks, zero-width characters, lone surrogates,
    and code points that Unicode does not assign.
    """
    if character.isprintable():
        return character in _INVISIBLE
    return unicodedata.category(character) != "Zs"  # spaces of other widths


def printable(text: object, most: int = NAME) -> str:
    r"""`text` as one line of at most `most` characters, with hidden characters escaped.

    The escapes are Python's, such as ``\\n`` and ``\\x1b``. A second call changes
    nothing. `most` must be at least 40.
    """
    whole = str(text)
    shown = "".join(map(_shown, whole[: most + 1]))
    if max(len(whole), len(shown)) <= most:
        return shown
    end = f"... ({len(whole)} characters)"
    return shown[: most - len(end)] + end


def _shown(character: str) -> str:
    if is_hidden(character):
        return character.encode("unicode_escape").decode("ascii")
    return character


class Lines(str):
    """A text of several printable lines. Sinks keep line ends of this type only.

    Parameters
    ----------
    lines : iterable of str
    """

    def __new__(cls, lines: Iterable[object]) -> Lines:
        return super().__new__(cls, "\n".join(printable(line, LINE) for line in lines))

    def __getnewargs__(self) -> tuple:
        return (self.split("\n"),)


def say(*lines: object, file: TextIO | None = None) -> None:
    """Print each of `lines` for the user, as one line of printable characters."""
    for line in lines:
        print(_text(line), file=file or sys.stdout, flush=True)


def agrees(question: str) -> bool:
    """Whether the person at the terminal says y; the end of the input says no."""
    try:
        return input(f"{question} [y/N] ").strip().lower() == "y"
    except EOFError:
        say("")  # the question's line has no end
        return False


def show_all_characters() -> None:
    """Let the standard streams write escapes for characters that their encoding lacks.

    Without this, output into a file ends at the first such character on many systems.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say_json(value: object) -> None:
    """Print `value` as JSON, with its true texts as far as the terminal can show them.

    Hidden characters, and those that the output's encoding lacks, are JSON escapes.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    print("\n".join("".join(map(_json_escaped, line)) for line in text.split("\n")))


def _json_escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if is_hidden(character) else character


def get_logger(name: str) -> logging.Logger:
    """The logger `name`. All its records are printable, whichever handler writes them.

    A message is one line, whatever its arguments hold. Line ends stay in three places
    only: in `Lines`, in errors of this package, and in the format text of a message
    that has arguments.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_make_printable)
    return logger


def _make_printable(record: logging.LogRecord) -> bool:
    if not record.args:
        record.msg = _text(record.msg)
    elif isinstance(record.args, tuple):
        record.args = tuple(map(_text, record.args))
    if record.exc_info and record.exc_info[0] and not record.exc_text:
        trace = logging.Formatter().formatException(record.exc_info)
        # Indented, so that no line of an error's text looks like a line of the log.
        record.exc_text = Lines(f"  {line}" for line in trace.split("\n"))
    return True


def _text(value: object) -> object:
    """`value` as printable text.

    The text has one line, unless `value` is a `Lines`.
    """
    # Lists and dicts show their texts as repr does, and repr escapes them.
    if isinstance(value, (Lines, Number, Mapping, list, tuple, type(None))):
        return value
    if isinstance(value, BaseException):
        return Lines(getattr(value, "lines", [value]))
    return printable(value, LINE)


def as_html(text: object) -> str:
    """`text` escaped for HTML, to stand between tags or in a quoted attribute."""
    return html.escape(printable(text, LINE))


def markdown(text: object) -> str:
    """`text` escaped for Markdown, to stand in a line or in a cell of a table."""
    plain = _MARKDOWN.sub(r"\\\1", printable(text, LINE).strip())
    return _LIST.sub(r"\1\\\2", plain)


def file_name(name: str, most: int = 80) -> str:
    """`name` as a safe name for a file or folder; "_" if no character can stay.

    Word characters, ".", "=" and "-" stay. Others become "_".
    """
    plain = "".join("_" if is_hidden(character) else character for character in name)
    kept = re.sub(r"[^\w.=-]+", "_", plain).strip("_.")[:most]
    return kept.encode()[:_MOST_BYTES].decode(errors="ignore") or "_"
