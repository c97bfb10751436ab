"""``ggeur join`` and ``ggeur serve``: run a site or the server of a federation."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from federatedscope_ggeur import commands
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.files import read_regular
from federatedscope_ggeur.printable import agrees, say

#: Bytes of a file of settings.
_LARGEST = 1 << 20
_SAME = "Compare them by telephone. Are they the same there?"
_SIDE = """
--folder SHARED: exchange files in this folder, in place of a connection
--once: with --folder: take what is there, and end; say what comes next
--keys FOLDER: with --folder: this side's own keys and stores (default: keys, beside the
  YAML file)
--yes: with --folder: the words of all keys in known.txt were compared by telephone; do
  not ask
"""
_JOIN = """
--new NAME: make this side's key for --folder, and print the line for the other side
--again: with --folder: join again after this site or the server ended its part
--new-run: without --folder: forget what this site answered in a run that it has not
  finished; the federation begins another one
"""
_SERVE = """
--new [NAME]: make this side's key for --folder, and print the line for the other side
settings [KEY VALUE...]: override settings of the file
"""


def join(arguments: Sequence[str]) -> int:
    """Take part in a federation as the site that the file describes."""
    parser = _side_parser("join")
    commands.add_options(parser, _JOIN)
    return _run_side(parser, arguments, serves=False)


def serve(arguments: Sequence[str]) -> int:
    """Lead the federation that the file describes."""
    parser = _side_parser("serve")
    commands.add_options(parser, _SERVE, new={"const": "server"})
    return _run_side(parser, arguments, serves=True)


def healthy(arguments: Sequence[str]) -> int:
    """Return 0 if the process that this file started is still running, else 1."""
    parser = role_parser("healthy", "For systemd, containers, monitors.")
    commands.add_options(parser, "settings [KEY VALUE...]: as they were given to serve")
    options = parser.parse_intermixed_args(arguments)
    more = dict(zip(options.settings[::2], options.settings[1::2]))
    import yaml  # not by cfg_ggeur, which imports torch: monitors ask often

    from .watch import is_fresh

    path = find_config(options.cfg).resolve()
    try:
        said = {**(yaml.safe_load(read_regular(path, _LARGEST)) or {}), **more}
        place = path.parent / said.get("outdir", "exp") / said.get("expname", "")
    except (OSError, ValueError, yaml.YAMLError, AttributeError, TypeError) as error:
        # It imports torch, but says what is wrong with a YAML file, and in which line.
        from federatedscope_ggeur.cfg_ggeur.yaml_file import read_tree

        read_tree(path)
        raise ConfigError(f"{path}: outdir and expname must be texts") from error
    # FS puts a later run into a folder below the first one's.
    folders = [place, *sorted(place.glob("sub_exp_*"))]
    good = any(map(is_fresh, folders))
    say("goes on" if good else f"no process of this file is running ('{place}')")
    return 0 if good else 1


def role_parser(
    name: str, more: str = "", required: bool = True
) -> argparse.ArgumentParser:
    """Make a parser for a command that takes the file of one process."""
    parser = commands.command_parser(
        name, f"Paths in the file are relative to its folder. {more}".strip()
    )
    table = "--cfg FILE: YAML file of this process"
    commands.add_options(parser, table, cfg={"required": required})
    return parser


def _side_parser(name: str) -> argparse.ArgumentParser:
    """Make the parser of a side of a federation, which may use a shared folder."""
    parser = role_parser(name, required=False)
    commands.add_options(parser, _SIDE)
    commands.add_console_options(parser)
    return parser


def _run_side(
    parser: argparse.ArgumentParser, arguments: Sequence[str], serves: bool
) -> int:
    """Make a side's key, or run the side, by a shared folder or over streams."""
    options = parser.parse_intermixed_args(arguments)
    if serves and options.folder and options.settings:
        parser.error("with --folder, all settings are in the file")
    beside = Path(options.cfg).parent if options.cfg else Path()
    options.keys = Path(options.keys or beside / "keys").absolute()
    if options.new:
        _make_keys(options, serves)
    elif not options.cfg:
        parser.error("--cfg is needed")
    elif options.folder:
        _by_folder(options, serves)
    else:
        _by_streams(options, serves)
    return 0


def _make_keys(options: argparse.Namespace, serves: bool) -> None:
    from .keys import KNOWN, make_identity
    from .transport.certificates import require_cryptography

    require_cryptography()
    own, keys = make_identity(options.keys, options.new), options.keys
    other = "each site" if serves else "the person who leads the federation"
    say(f"the key is in {keys}; keep this folder to yourself, and out of backups")
    say(f"give {other} this line, and add the line of the other side to {KNOWN} there:")
    say(own.line)


def _by_folder(options: argparse.Namespace, serves: bool) -> None:
    """Run this side over a shared folder, and print what comes next."""
    # Imported here: torch takes seconds, and --help needs none of it.
    from federatedscope_ggeur.commands.console import shown_on_console

    from .keys import PinnedKeys, read_identity
    from .server import lead
    from .site import take_part
    from .transport.certificates import require_cryptography

    require_cryptography()
    # Before this process changes to the folder of the YAML file.
    path, shared = str(Path(options.cfg).absolute()), Path(options.folder).absolute()
    keys = options.keys
    own = read_identity(
        keys, "ggeur serve --new" if serves else "ggeur join --new NAME"
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _compare(PinnedKeys(keys, own, serves), options.yes)
    with shown_on_console(options.log_level or "info"):
        if serves:
            say(lead(path, shared, keys, own, options.once))
        else:
            say(take_part(path, shared, keys, own, options.once, options.again))


def _compare(known: Any, yes: bool) -> None:
    """Ask for the words of keys that nobody has compared, if somebody can be asked."""
    for line in list(known.uncompared):
        say(f"words of {line}")
        asks = not yes and sys.stdin.isatty()
        if yes or (asks and agrees(_SAME)):
            known.note_compared(line)
        elif asks:
            say("then nothing is exchanged with that side")


def _by_streams(options: argparse.Namespace, serves: bool) -> None:
    # Imported here: torch takes seconds, and --help needs none of it.
    from federatedscope_ggeur.commands.console import shown_on_console

    from ..run import note_start
    from .connected import lead, take_part
    from .roles import role_config

    # Before this process changes to the folder of the file.
    note_start([commands.PROGRAM])
    role, settings = ("server", options.settings) if serves else ("client", ())
    cfg = role_config(options.cfg, role, overrides=settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with shown_on_console(options.log_level or cfg.verbose > 0):
        if serves:
            print(lead(cfg))
        else:
            say(take_part(cfg, options.new_run))


def check(arguments: Sequence[str]) -> int:
    """Print a line for each check; returns 1 if the site could not join."""
    parser = role_parser(
        "check", "No data leave this machine, and the site does not join."
    )
    options = parser.parse_args(arguments)
    # Imported here: torch takes seconds, and --help needs none of it.
    from federatedscope_ggeur.cfg_ggeur.yaml_file import read_yaml

    said = dict(read_yaml(find_config(options.cfg)))
    asks, good = "distribute.server_host" in said, True
    is_named = "ggeur.client_number" in said or "distribute.data_idx" in said
    for finding in _findings(options.cfg, asks, asks or is_named):
        mark = "PROBLEM" if finding.problem else "ok     "
        say(f"{mark} {finding.what}: {' '.join(finding.said.split())}")
        sys.stdout.flush()
        good &= not finding.problem
    ways = ""
    if not asks:
        ways = " by --folder or Flower" if is_named else " by --folder alone"
    say(f"ready to join{ways}" if good else "not ready to join")
    return 0 if good else 1


def _findings(path: str, asks: bool, is_named: bool) -> Iterator:
    """Check the site of a file, and its server if it `asks` one.

    Where the site is not named there, the server's greeting in a folder says who it is.
    """
    from federatedscope_ggeur.commands.console import shown_on_console

    from .roles import client_number, release_text, role_config
    from .site import site_settings
    from .site_check import SiteFinding, data_findings, server_findings

    yield SiteFinding("program", release_text())
    try:
        cfg = role_config(path, "client", {} if asks else site_settings("site", 1))
    except ConfigError as error:
        yield SiteFinding("settings", str(error), True)
        return
    who = f"of client {client_number(cfg)}"
    if not is_named:
        who = "the file has no ggeur.client_number; join --folder gets it from there"
    yield SiteFinding("settings", who)
    with shown_on_console("warning"):
        yield from data_findings(cfg)
    if asks:
        yield from server_findings(cfg)
    else:
        said = "not asked, because the file has no distribute.server_host"
        yield SiteFinding("server", said)
