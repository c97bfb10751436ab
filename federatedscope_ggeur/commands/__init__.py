"""The commands, one file each; only the file of the called command is imported."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

PROGRAM = "ggeur"
INTERRUPTED = 130
#: Groups of commands, in the order of the help.
BEFORE, RUN, SITES, AFTER, LIVING, ATTACK, FS, FLOWER, SET_UP = GROUPS = (
    "before a run", "runs", "real sites", "after a run", "over time", "privacy",
    "with FederatedScope", "with Flower", "set-up",
)  # fmt: skip


class Command(NamedTuple):
    """The module of a command, and its line in the help.

    Attributes
    ----------
    module : str
        The file in this folder. Its function with the command's name, with _ for -,
        takes the words behind the name and returns the exit status: 0, or 130 after an
        interruption, unless its docstring says more. It raises a `GGEURError` for what
        a user can fix.
    takes : str
        The words behind the name, in the help.
    does : str
        What the command does, in one line.
    group : str
        One of `GROUPS`.
    """

    module: str
    takes: str
    does: str
    group: str = AFTER


COMMANDS = {
    "quickstart": Command(
        "quickstart",
        "",
        "compare what a federation gains on bundled digits, in half a minute",
        RUN,
    ),
    "study": Command(
        "study",
        "[FILE]",
        "run methods x data x seeds, side by side; tunes, and goes on where it was cut "
        "off",
        RUN,
    ),
    "configs": Command(
        "configs",
        "[FOLDER]",
        "list the example configs, or copy them into FOLDER",
        BEFORE,
    ),
    "keys": Command(
        "keys", "", "list every ggeur.* setting, its default and meaning", BEFORE
    ),
    "enable": Command("enable", "[FOLDER]", "let FederatedScope load the plugin", FS),
    "disable": Command("enable", "[FOLDER]", "undo enable; nothing else changes", FS),
    "embed": Command(
        "embed", "--cfg FILE", "embed a data set's images beforehand", BEFORE
    ),
    "inspect": Command(
        "inspect",
        "--cfg FILE",
        "draw who holds what, and how alike domains' shapes are",
        BEFORE,
    ),
    "audit": Command(
        "audit",
        "--cfg FILE [--level rows|membership|dp]",
        "attack what a run sends, and say what it gives away",
        ATTACK,
    ),
    "privacy-ledger": Command(
        "privacy_ledger",
        "FOLDER",
        "print what clients have spent of their rows' privacy",
        ATTACK,
    ),
    "predict": Command(
        "predict", "--run FOLDER IMAGE...", "classify images by the head of a run"
    ),
    "compare": Command(
        "compare", "RUN RUN...", "print runs side by side, with intervals and p-values"
    ),
    "report": Command(
        "report", "FOLDER...", "write tables and figures of runs and studies"
    ),
    "certificates": Command(
        "certificates",
        "FILE",
        "make a folder for each site: settings, TLS certificate, token",
        SITES,
    ),
    "check": Command(
        "check", "--cfg FILE", "say what would keep a site from joining", SITES
    ),
    "serve": Command("join", "--cfg FILE", "lead a federation of real sites", SITES),
    "join": Command("join", "--cfg FILE", "take part in it, as one site", SITES),
    "healthy": Command(
        "join", "--cfg FILE", "say whether serve or join goes on: exit status 0", SITES
    ),
    "update": Command(
        "book",
        "BOOK --join|--leave|--forget K|...",
        "let clients join, leave or be forgotten; classes join, old rows go",
        LIVING,
    ),
    "head": Command(
        "book", "BOOK --clients 1,4", "write the head of some clients", LIVING
    ),
    "worth": Command("book", "BOOK --rows FILE", "say what each client adds", LIVING),
    "certificate": Command(
        "book",
        "BOOK --out FILE",
        "sign a book's changes and its head: proof of who is in it",
        LIVING,
    ),
    "verify": Command(
        "book", "FILE [--book BOOK]", "check a certificate of a book", LIVING
    ),
    "token": Command(
        "token", "SECRET N", "make client N's join token for a distributed run", SITES
    ),
    "flower-app": Command(
        "flower_app",
        "FOLDER --cfg FILE",
        "write the app folder that `flwr run` takes to a federation",
        FLOWER,
    ),
    "site": Command(
        "site", "--cfg FILE", "answer for a site's client until its run is over", FLOWER
    ),
    "doctor": Command(
        "doctor", "", "say what is installed, and what is missing for what", SET_UP
    ),
}


def find_command(name: str) -> Callable[[Sequence[str]], int]:
    """The function of the command `name`, from its file."""
    module = import_module(f"{__name__}.{COMMANDS[name].module}")
    return getattr(module, name.replace("-", "_"))


def overview() -> str:
    """The commands, one line each, below the titles of their groups."""
    calls = {name: f"{name} {command.takes}" for name, command in COMMANDS.items()}
    width = max(map(len, calls.values()))
    paragraphs = []
    for group in GROUPS:
        of_group = [name for name, one in COMMANDS.items() if one.group == group]
        lines = [f"  {calls[n]:<{width}}  {COMMANDS[n].does}" for n in of_group]
        paragraphs += ["\n".join([f"{group}:", *lines])] * bool(of_group)
    return "\n\n".join(paragraphs)


def command_parser(name: str, more: str = "") -> argparse.ArgumentParser:
    """A parser with the command's description, and the text `more`."""
    does = COMMANDS[name].does
    return argparse.ArgumentParser(
        prog=f"{PROGRAM} {name}",
        description=f"{does[0].upper()}{does[1:]}. {more}".strip(),
    )


def add_console_options(parser: argparse.ArgumentParser) -> None:
    """Add options for how much is shown, as ``log_level``; None by default.

    It is for `console.shown_on_console`."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--quiet",
        dest="log_level",
        action="store_const",
        const="warning",
        help="show warnings and what comes out, nothing else",
    )
    group.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="show messages from this level on (default: info)",
    )


def add_folder_options(parser: argparse.ArgumentParser) -> None:
    """Add ``plugins`` and ``trust``, which only the user may give for runs' folders."""
    parser.add_argument(
        "--plugins",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module of your own that runs need; may be repeated (a results file "
        "never makes this program import a module)",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="follow the folders' settings to what they name outside: data, weights, "
        "caches, downloads; only if you know where the folders come from",
    )


def config_parser(
    name: str, more: str = "", required: bool = True
) -> argparse.ArgumentParser:
    """A `command_parser` that takes a config; call its `parse_intermixed_args`.

    The options ``cfg`` and ``settings`` are for `load_config`.
    """
    parser = command_parser(name, more)
    parser.add_argument(
        "--cfg", metavar="FILE", required=required, help="YAML file of the experiment"
    )
    parser.add_argument(
        "settings", nargs="*", metavar="KEY VALUE", help="override settings"
    )
    return parser
