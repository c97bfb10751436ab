"""The table of commands. Each has a file, imported only when it is called."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module

from federatedscope_ggeur.extras import AFTER, Command, all_of

PROGRAM = "ggeur"
INTERRUPTED = 130
#: Groups of commands, in the order of the help.
GROUPS = (
    "before a run", "runs", "real sites", AFTER, "over time", "privacy",
    "with FederatedScope", "with Flower", "set-up",
)  # fmt: skip


COMMANDS = {
    "configs": Command(
        "configs",
        "[FOLDER]",
        "list the example configs, or copy them into FOLDER",
        "before a run",
    ),
    "keys": Command(
        "keys",
        "",
        "list every ggeur.* setting, its default and meaning",
        "before a run",
    ),
    "embed": Command(
        "embed", "--cfg FILE", "embed a data set's images beforehand", "before a run"
    ),
    "predict": Command(
        "predict", "--run FOLDER IMAGE...", "classify images by the head of a run"
    ),
    "doctor": Command(
        "doctor",
        "",
        "list installed packages, and what missing ones are needed for",
        "set-up",
    ),
}
COMMANDS |= all_of("commands")


def find_command(name: str) -> Callable[[Sequence[str]], int]:
    """Import and return the function of the command `name`."""
    where = COMMANDS[name].module
    module = import_module(where if "." in where else f"{__name__}.{where}")
    return getattr(module, name.replace("-", "_"))


def overview() -> str:
    """The help text that lists all commands by group."""
    calls = {name: f"{name} {command.takes}" for name, command in COMMANDS.items()}
    width = max(map(len, calls.values()))
    paragraphs = []
    for group in GROUPS:
        of_group = [name for name, one in COMMANDS.items() if one.group == group]
        lines = [f"  {calls[n]:<{width}}  {COMMANDS[n].does}" for n in of_group]
        paragraphs += ["\n".join([f"{group}:", *lines])] * bool(of_group)
    return "\n\n".join(paragraphs)


def command_parser(name: str, more: str = "") -> argparse.ArgumentParser:
    """Make a parser with the command's description, followed by `more`."""
    does = COMMANDS[name].does
    return argparse.ArgumentParser(
        prog=f"{PROGRAM} {name}",
        description=f"{does[0].upper()}{does[1:]}. {more}".strip(),
    )


def add_console_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that set ``log_level``, which is None by default.

    The value is meant for `console.shown_on_console`.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--quiet",
        dest="log_level",
        action="store_const",
        const="warning",
        help="show only warnings and results",
    )
    group.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="show messages from this level on (default: info)",
    )


def add_folder_options(parser: argparse.ArgumentParser) -> None:
    """Add the options ``plugins`` and ``trust`` for commands that read runs' folders.

    Only the user may name plugins or trust a folder. A run's folder never does so
    itself.
    """
    add_plugins_option(parser)
    parser.add_argument(
        "--trust",
        action="store_true",
        help="use weights and downloads outside the folder if its settings name "
        "them; only for folders whose origin you know",
    )


def add_plugins_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``plugins``: only the user may name modules to import."""
    parser.add_argument(
        "--plugins",
        action="append",
        default=[],
        metavar="MODULE",
        help="your own module that the runs need; may be repeated (a results file "
        "never makes this program import a module)",
    )


def add_labels_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``labels`` for commands that read rows with labels."""
    parser.add_argument(
        "--labels",
        choices=("names", "positions"),
        default="",
        help="how to read the labels of files of rows: as names of classes, or as "
        "positions in the list of classes, from 0 (default: as those of the rows that "
        "the head was made from)",
    )


def config_parser(
    name: str, more: str = "", required: bool = True
) -> argparse.ArgumentParser:
    """Make a `command_parser` that takes a config.

    Call its `parse_intermixed_args`, and pass the options ``cfg`` and ``settings`` to
    `load_config`.
    """
    parser = command_parser(name, more)
    parser.add_argument(
        "--cfg", metavar="FILE", required=required, help="YAML file of the experiment"
    )
    parser.add_argument(
        "settings", nargs="*", metavar="KEY VALUE", help="override settings"
    )
    return parser
