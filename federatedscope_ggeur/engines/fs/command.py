"""``ggeur enable`` and ``ggeur disable``: let FederatedScope load the plugin or not."""

from __future__ import annotations

from collections.abc import Sequence

from federatedscope_ggeur.commands import add_options, command_parser

from . import install

_OPTIONS = """
folder [FOLDER]: FederatedScope's checkout or package folder (default: the one that can
  be imported, else FEDERATEDSCOPE_HOME)
"""


def enable(arguments: Sequence[str]) -> int:
    """Let FederatedScope load the plugin."""
    folder = _folder("enable", arguments)
    print(install.enable(folder))
    print(f"run: {install.run_command(folder)}")
    return 0


def disable(arguments: Sequence[str]) -> int:
    """Undo `enable`: FederatedScope no longer loads the plugin."""
    print(install.disable(_folder("disable", arguments)))
    return 0


def _folder(name: str, arguments: Sequence[str]) -> str | None:
    parser = command_parser(name)
    add_options(parser, _OPTIONS)
    return parser.parse_args(arguments).folder
