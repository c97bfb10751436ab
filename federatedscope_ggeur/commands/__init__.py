"""The commands, a file each; no more is imported than the one that is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

PROGRAM = "federatedscope-ggeur"
INTERRUPTED = 130


class Command(NamedTuple):
    """Where a command is, and what is said of it.

    Attributes
    ----------
    module : str
        The file in this folder; its function of the command's name takes the words
        behind the name and returns the exit status: 0, or 130 after an interruption,
        unless it says more. It raises a `GGEURError` for what a user can mend.
    takes : str
        Those words, for a person.
    does : str
        What it does, in one line.
    """

    module: str
    takes: str
    does: str


COMMANDS = {
    "configs": Command(
        "configs", "[FOLDER]", "list the example configs, or copy them into FOLDER"
    ),
    "keys": Command("keys", "", "list every ggeur.* setting, its default and meaning"),
    "enable": Command("enable", "[FOLDER]", "let FederatedScope load the plugin"),
    "disable": Command("enable", "[FOLDER]", "undo enable; nothing else changes"),
    "embed": Command("embed", "--cfg FILE", "embed a data set's images beforehand"),
    "inspect": Command(
        "inspect",
        "--cfg FILE",
        "draw who holds what, and how alike domains' shapes are",
    ),
    "audit": Command(
        "audit",
        "--cfg FILE [--level rows|membership]",
        "attack what a run sends, and say what it gives away",
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
        "token", "SECRET N", "make client N's join token for a distributed run"
    ),
    "doctor": Command(
        "doctor", "", "say what is installed, and what is missing for what"
    ),
}


def find_command(name: str) -> Callable[[Sequence[str]], int]:
    """The function of the command `name`, from its file."""
    module = import_module(f"{__name__}.{COMMANDS[name].module}")
    return getattr(module, name)


def overview() -> str:
    """The commands, a line each."""
    calls = {name: f"{name} {command.takes}" for name, command in COMMANDS.items()}
    width = max(map(len, calls.values()))
    return "\n".join(
        f"  {calls[name]:<{width}}  {command.does}"
        for name, command in COMMANDS.items()
    )


def command_parser(name: str, more: str = "") -> argparse.ArgumentParser:
    """A parser that says of the command what the table of commands says, and `more`."""
    does = COMMANDS[name].does
    return argparse.ArgumentParser(
        prog=f"{PROGRAM} {name}",
        description=f"{does[0].upper()}{does[1:]}. {more}".strip(),
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
