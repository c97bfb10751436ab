# PYTHON_ARGCOMPLETE_OK
"""The program `ggeur`: calls the command of the user, and shows its errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from federatedscope_ggeur.commands import COMMANDS, INTERRUPTED, find_command
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.printable import show_all_characters


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`; returns the exit status."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks, since Tab was pressed
        from federatedscope_ggeur.commands.completion import complete

        complete()
    show_all_characters()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in COMMANDS:
            return find_command(arguments[0])(arguments[1:])
        from federatedscope_ggeur.commands.run import run

        return run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except GGEURError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:
        told = _of_a_plugin(error)
        if told is None:
            raise
        print(f"error: {told}", file=sys.stderr)
        return 1


def _of_a_plugin(error: Exception) -> GGEURError | None:
    """The error to show if `error` comes from a user's own part; else None."""
    plugins = sys.modules.get("federatedscope_ggeur.cfg_ggeur.plugins")
    return plugins.told_of(error) if plugins else None
