"""``ggeur join`` and ``ggeur serve``: run a site or the server of a federation."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from federatedscope_ggeur.commands import command_parser
from federatedscope_ggeur.printable import say


def join(arguments: Sequence[str]) -> int:
    """Take part in a federation as the site that the file describes."""
    parser = role_parser("join")
    parser.add_argument(
        "--new-run",
        action="store_true",
        help="with Flower: answer another run than the one before",
    )
    options = parser.parse_args(arguments)

    def on_flower(cfg) -> None:
        from federatedscope_ggeur.engines.flower.real import take_part

        take_part(cfg, options.new_run)

    return _start(options.cfg, "client", on_flower)


def serve(arguments: Sequence[str]) -> int:
    """Lead the federation that the file describes."""
    options = role_parser("serve").parse_args(arguments)

    def on_flower(cfg) -> None:
        from federatedscope_ggeur.engines.flower.real import lead
        from federatedscope_ggeur.reporting import read_results, results_table

        print(results_table(read_results(lead(cfg))))

    return _start(options.cfg, "server", on_flower)


def healthy(arguments: Sequence[str]) -> int:
    """Return 0 if the process that this file started is still running, else 1."""
    options = role_parser("healthy", "For systemd, containers, monitors.").parse_args(
        arguments
    )
    from federatedscope_ggeur.cfg_ggeur.yaml_file import read_yaml
    from federatedscope_ggeur.engines.watch import is_fresh

    path = Path(options.cfg).resolve()
    said = dict(read_yaml(path))
    place = path.parent / said.get("outdir", "exp") / said.get("expname", "")
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


def _start(path: str, role: str, on_flower: Callable[[Any], None]) -> int:
    # Imported here: torch takes seconds, and --help needs none of it.
    from federatedscope_ggeur.engines.roles import (
        role_config,
        role_settings,
        uses_flower,
    )

    if not uses_flower(path):
        from federatedscope_ggeur.engines.fs.launch import launch

        return launch(*role_settings(path, role))
    from federatedscope_ggeur.commands.console import shown_on_console

    cfg = role_config(path, role)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with shown_on_console(cfg.verbose > 0):
        on_flower(cfg)
    return 0
