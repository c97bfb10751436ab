"""``ggeur join`` and ``ggeur serve``: run a site or the server of a federation."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.commands import command_parser
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.printable import say


def join(arguments: Sequence[str]) -> int:
    """Take part in a federation as the site that the file describes."""
    return _start(role_parser("join").parse_args(arguments).cfg, "client")


def serve(arguments: Sequence[str]) -> int:
    """Lead the federation that the file describes."""
    return _start(role_parser("serve").parse_args(arguments).cfg, "server")


def healthy(arguments: Sequence[str]) -> int:
    """Return 0 if the process that this file started is still running, else 1."""
    options = role_parser("healthy", "For systemd, containers, monitors.").parse_args(
        arguments
    )
    import yaml  # not by cfg_ggeur, which imports torch: monitors ask often

    from federatedscope_ggeur.engines.watch import is_fresh

    path = Path(options.cfg).resolve()
    try:
        said = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        place = path.parent / said.get("outdir", "exp") / said.get("expname", "")
    except (OSError, ValueError, yaml.YAMLError, AttributeError, TypeError) as error:
        raise ConfigError(f"'{path}': cannot be read: {error}") from error
    # FS puts a later run into a folder below the first one's.
    folders = [place, *sorted(place.glob("sub_exp_*"))]
    good = any(map(is_fresh, folders))
    say("goes on" if good else f"no process of this file is running ('{place}')")
    return 0 if good else 1


def role_parser(name: str, more: str = "") -> argparse.ArgumentParser:
    """Make a parser for a command that takes only the file of one process."""
    parser = command_parser(
        name, f"Paths in the file are relative to its folder. {more}".strip()
    )
    parser.add_argument(
        "--cfg", metavar="FILE", required=True, help="YAML file of this process"
    )
    return parser


def _start(path: str, role: str) -> int:
    # Imported here: torch takes seconds, and --help needs none of it.
    from federatedscope_ggeur.engines.fs.launch import launch
    from federatedscope_ggeur.engines.roles import role_settings

    return launch(*role_settings(path, role))
