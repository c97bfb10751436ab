"""``ggeur update|head|certificate|verify``: the commands for a book."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from federatedscope_ggeur.commands import add_labels_option, add_options, command_parser
from federatedscope_ggeur.errors import (
    ConfigError,
    DataError,
    StatisticsError,
    refusing,
)
from federatedscope_ggeur.printable import say

_DAYS = {"d": 1, "w": 7, "y": 365}
_MOST_DAYS = 100 * 365

_CHANGES = """
--join K: client K joins with statistics of the rows of --rows, or of its rows in the
  book's run
--leave K: client K leaves; earlier heads stay
--forget K: client K leaves; all heads and files made with its rows are removed
--withdraw K: the rows of --rows are removed from the statistics of client K
--classes FILE: new classes join: their names, one a line
--window SPAN: rows that joined longer ago than this span are removed, such as 365d, 52w
  or 1y
--retrain [KEY VALUE...]: train a head from a new round 0 with those in the book, whose
  rows the data of the book's run must hold: the same bits as a run that never had the
  others
--finish: finish a change that was interrupted; nothing else of a book does
"""
_ROWS = """
--rows FILE: npz or csv of embeddings with labels
--domain DOMAIN: with --join and --rows: the client's domain
"""
_VERIFIED = """
file FILE: the certificate
--book BOOK: compute the head again and compare it
--receipt FILE: a client's receipt
"""


def update(arguments: Sequence[str]) -> int:
    """Change the clients of a book and make its head again."""
    parser = _book_parser(
        "update",
        "Pass on only the new head: means and scatters would tell other clients "
        "about the newcomer.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    number = {"type": int}
    add_options(
        what,
        _CHANGES,
        join=number,
        leave=number,
        forget=number,
        withdraw=number,
        window={"type": _days},
    )
    add_options(parser, _ROWS, domain={"default": ""})
    add_labels_option(parser)
    options = parser.parse_args(arguments)
    if options.withdraw is not None and options.rows is None:
        parser.error("--withdraw needs --rows FILE, the rows that go")
    if options.rows and options.join is None and options.withdraw is None:
        parser.error("--rows is for --join and --withdraw")
    # Imported here: torch takes seconds, and --help needs none of it.
    from .federation import Federation

    if options.finish:
        for line in Federation.finish(options.book)[1]:
            say(line)
        return 0
    book = Federation.load(options.book)
    if options.retrain is not None:
        return _retrain(book, options.retrain)
    if options.join is not None:
        change = _join(book, options)
    elif options.withdraw is not None:
        rows = _rows(book, options.rows)
        with _naming(options.rows):
            change = book.withdraw(options.withdraw, rows, how=options.labels)
    elif options.leave is not None:
        change = book.leave(options.leave)
    elif options.forget is not None:
        change = book.forget(options.forget)
    elif options.window is not None:
        change = book.window(options.window)
    else:
        change = book.add_classes(_names(options.classes))
    say(f"clients in the book: {', '.join(map(str, book.clients)) or 'none'}")
    for line in change.said:
        say(f"note: {line}")
    say(f"run folder: {change.folder}" if change.folder else "there is no head")
    return 0


def head(arguments: Sequence[str]) -> int:
    """Write the head of some clients of a book."""
    parser = _book_parser("head")
    parser.add_argument("--clients", type=_numbers, metavar="1,4,5")
    parser.add_argument(
        "--out", required=True, metavar="FOLDER", help="a new folder for predict --run"
    )
    options = parser.parse_args(arguments)
    from .federation import Federation

    book = Federation.load(options.book)
    clients = book.write_head(options.out, options.clients)
    say(f"the head of clients {', '.join(map(str, clients))} is in {options.out}")
    return 0


def certificate(arguments: Sequence[str]) -> int:
    """Write a certificate of a book, or a client's receipt."""
    parser = _book_parser(
        "certificate",
        "It proves whose statistics the head of a book was made from; the TLS "
        "certificates that show who a site is are made by `ggeur certificates`.",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="a new file")
    parser.add_argument(
        "--receipt", type=int, metavar="K", help="client K's receipt instead"
    )
    options = parser.parse_args(arguments)
    from federatedscope_ggeur.files import write_atomically

    from .federation import Federation

    if Path(options.out).exists():
        raise ConfigError(f"'{options.out}' exists already; name a new file")
    book, number = Federation.load(options.book), options.receipt
    made = book.certificate() if number is None else book.receipt(number)
    write_atomically(options.out, json.dumps(made, indent=1) + "\n")
    say(f"written: {options.out}")
    return 0


def verify(arguments: Sequence[str]) -> int:
    """Check a certificate."""
    parser = command_parser("verify")
    add_options(parser, _VERIFIED)
    options = parser.parse_args(arguments)
    from .federation import Federation
    from .runs import verify as proven

    book = None if options.book is None else Federation.load(options.book)
    receipt = None if options.receipt is None else _read(options.receipt, json.loads)
    for line in proven(_read(options.file, json.loads), book, receipt):
        say(line)
    return 0


def _book_parser(name: str, more: str = "") -> argparse.ArgumentParser:
    parser = command_parser(name, more)
    parser.add_argument("book", metavar="BOOK", help="the book's folder")
    return parser


def _retrain(book: Any, settings: Sequence[str]) -> int:
    """Train with the clients in the book; returns the run's exit status."""
    from federatedscope_ggeur.commands.console import run_with_files

    from .folder import RunPlaces
    from .runs import new_run

    cfg, data = new_run(book, settings)
    runs: list[RunPlaces] = []

    def begun(folder: Path) -> None:
        run = RunPlaces.of(folder)
        book.begin_run(run)
        runs.append(run)

    try:
        return run_with_files(cfg, data=data, begun=begun)
    finally:
        for run in runs:
            book.keep_run(run)


def _join(book: Any, options: argparse.Namespace) -> Any:
    if options.rows is not None:
        rows = _rows(book, options.rows)
        domain, how = options.domain, options.labels
        with _naming(options.rows):
            return book.join(options.join, rows, domain=domain, how=how)
    from .runs import statistics_of_client

    return book.take(options.join, *statistics_of_client(book, options.join))


def _rows(book: Any, path: str) -> Any:
    from federatedscope_ggeur.data import Rows

    return Rows.of_file(path, book.expected.given.titles)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Name the file whose rows do not fit into the book."""
    try:
        yield
    except StatisticsError as error:
        raise StatisticsError(f"'{path}': {error}") from error


def _names(path: str) -> list[str]:
    lines = _read(path, str.splitlines)
    return [line.strip() for line in lines if line.strip()]


def _days(span: str) -> float:
    match = re.fullmatch(r"(\d{1,6})([dwy])", span)
    days = 0 if match is None else int(match[1]) * _DAYS[match[2]]
    if not 0 < days <= _MOST_DAYS:
        raise argparse.ArgumentTypeError(
            f"{span!r} is no time span from 1d to 100y; write e.g. 365d, 52w or 1y: "
            "rows that joined longer ago than this are removed"
        )
    return days


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of numbers; write e.g. 1,4,5"
        ) from None


def _read(path: str, parse: Callable[[str], Any]) -> Any:
    """What `parse` makes of a file's text."""
    with refusing(f"'{path}' cannot be read", kind=DataError):
        return parse(Path(path).read_text(encoding="utf-8"))
