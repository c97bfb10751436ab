"""What the parsers of the commands have in common."""

from __future__ import annotations

import argparse

from federatedscope_ggeur.commands import COMMANDS, PROGRAM


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
