"""The commands, a file each; no more is imported than the one that is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

PROGRAM = "ggeur"
INTERRUPTED = 130
#: What commands are for, in the order in which the help shows them.
BEFORE, RUN, AFTER, ATTACK, FS, FLOWER, SET_UP = GROUPS = (
    "before a run", "runs", "after a run", "privacy", "with FederatedScope",
    "with Flower", "set-up",
)  # fmt: skip


class Command(NamedTuple):
    """Where a command is, and what is said of it.

    Attributes
    ----------
    module : str
        The file in this folder; its function of the command's name, with _ for -,
        takes the words behind the name and returns the exit status: 0, or 130 after an
        interruption, unless it says more. It raises a `GGEURError` for what a user can
        mend.
    takes : str
        Those words, for a person.
    does : str
        What it does, in one line.
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
        "--cfg FILE [--level rows|membership]",
        "attack what a run sends, and say what it gives away",
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
    "token": Command(
        "token", "SECRET N", "make client N's join token for a distributed run", FS
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
    """The commands, a line each, below what they are for."""
    calls = {name: f"{name} {command.takes}" for name, command in COMMANDS.items()}
    width = max(map(len, calls.values()))
    paragraphs = []
    for group in GROUPS:
        of_group = [name for name, one in COMMANDS.items() if one.group == group]
        lines = [f"  {calls[n]:<{width}}  {COMMANDS[n].does}" for n in of_group]
        paragraphs += ["\n".join([f"{group}:", *lines])] * bool(of_group)
    return "\n\n".join(paragraphs)


def command_parser(name: str, more: str = "") -> argparse.ArgumentParser:
    """A parser that says of the command what the table of commands says, and `more`."""
    does = COMMANDS[name].does
    return argparse.ArgumentParser(
        prog=f"{PROGRAM} {name}",
        description=f"{does[0].upper()}{does[1:]}. {more}".strip(),
    )


def add_console_options(parser: argparse.ArgumentParser) -> None:
    """Let the command line say how much is shown, as ``log_level``; None if it does
    not. It is to be given to `console.shown_on_console`."""
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
    """What only the user may say of folders of runs, as ``plugins`` and ``trust``."""
    parser.add_argument(
        "--plugins",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module of your own that runs need; may be repeated (none is ever "
        "imported because a results file names it)",
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
    """A `command_parser` that takes a config; to be asked by `parse_intermixed_args`.

    Its options have ``cfg`` and ``settings``, to be given to `load_config`.
    """
    parser = command_parser(name, more)
    parser.add_argument(
        "--cfg", metavar="FILE", required=required, help="YAML file of the experiment"
    )
    parser.add_argument(
        "settings", nargs="*", metavar="KEY VALUE", help="override settings"
    )
    return parser
