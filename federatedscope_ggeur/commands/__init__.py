"""The table of commands. Each has a file, imported only when it is called."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from federatedscope_ggeur.extras import AFTER, all_of, commands_in, entries

PROGRAM = "ggeur"
INTERRUPTED = 130
#: Groups of commands, in the order of the help.
GROUPS = (
    "before a run", "runs", "real sites", AFTER, "over time", "privacy",
    "with FederatedScope", "with Flower", "set-up",
)  # fmt: skip


_BEFORE = """
configs [FOLDER]: list the example configs, or copy them into FOLDER
keys: list every ggeur.* setting, its default and meaning
embed --cfg FILE: embed a data set's images beforehand
"""
_PREDICT = "predict --run FOLDER IMAGE...: classify images by the head of a run"
_DOCTOR = "doctor: list installed packages, and what missing ones are needed for"
COMMANDS = {
    **commands_in("", _BEFORE, "before a run"),
    **commands_in("", _PREDICT),
    **commands_in("", _DOCTOR, "set-up"),
    **all_of("commands"),
}


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


#: What stands behind the value of an argument, and how often argparse then takes it.
_HOW_OFTEN = {"...]": "*", "]": "?", "...": "+"}
#: What makes an option without a value's name more than a switch.
_NO_SWITCH = {"action", "choices", "nargs"}


def add_options(
    parser: argparse._ActionsContainer, table: str, **more: Mapping[str, Any]
) -> None:
    """Add the options and arguments that a table describes.

    Parameters
    ----------
    parser : ArgumentParser, or a group of its arguments
    table : str
        Of the form of `entries`: what people type, such as ``--out FOLDER``, and the
        help. An option without a value, such as ``--yes``, is a switch. An argument
        without dashes has its name first, such as ``file FILE``. ``[FILE]`` may be
        missing, ``FILE...`` may be several.
    more : mapping
        What ``add_argument`` is to know besides, such as ``type``, by name.
    """
    besides = dict(more)
    for head, does in entries(table):
        name, _, value = head.partition(" ")
        known = dict(besides.pop(name.strip("-").replace("-", "_"), {}))
        if value:
            whole = value.removeprefix("[").removesuffix("]")
            known["metavar"] = whole.removesuffix("...")
        elif name.startswith("--") and not known.keys() & _NO_SWITCH:
            known["action"] = "store_true"
        mark = next((mark for mark in _HOW_OFTEN if value.endswith(mark)), None)
        if mark is not None:
            known["nargs"] = _HOW_OFTEN[mark]
        parser.add_argument(name, help=does, **known)
    if besides:
        raise TypeError(f"the table has no {', '.join(besides)}")


def add_console_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that set ``log_level``, which is None by default.

    The value is meant for `console.shown_on_console`.
    """
    quiet = {"dest": "log_level", "action": "store_const", "const": "warning"}
    levels = {"choices": ("debug", "info", "warning", "error")}
    group = parser.add_mutually_exclusive_group()
    add_options(group, _CONSOLE, quiet=quiet, log_level=levels)


def add_folder_options(parser: argparse.ArgumentParser) -> None:
    """Add the options ``plugins`` and ``trust`` for commands that read runs' folders.

    Only the user may name plugins or trust a folder. A run's folder never does so
    itself.
    """
    add_plugins_option(parser)
    add_options(parser, _TRUST)


def add_plugins_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``plugins``: only the user may name modules to import."""
    add_options(parser, _PLUGINS, plugins={"action": "append", "default": []})


def add_labels_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``labels`` for commands that read rows with labels."""
    known = {"choices": ("names", "positions"), "default": ""}
    add_options(parser, _LABELS, labels=known)


_CONSOLE = """
--quiet: show only warnings and results
--log-level: show messages from this level on (default: info)
"""
_TRUST = """
--trust: use weights and downloads outside the folder if its settings name them; only
  for folders whose origin you know
"""
_PLUGINS = """
--plugins MODULE: your own module that the runs need; may be repeated (a results file
  never makes this program import a module)
"""
_LABELS = """
--labels: how to read the labels of files of rows: as names of classes, or as positions
  in the list of classes, from 0 (default: as those of the rows that the head was made
  from)
"""
_CONFIG = """
--cfg FILE: YAML file of the experiment
settings [KEY VALUE...]: override settings
"""


def config_parser(
    name: str, more: str = "", required: bool = True
) -> argparse.ArgumentParser:
    """Make a `command_parser` that takes a config.

    Call its `parse_intermixed_args`, and pass the options ``cfg`` and ``settings`` to
    `load_config`.
    """
    parser = command_parser(name, more)
    add_options(parser, _CONFIG, cfg={"required": required})
    return parser
