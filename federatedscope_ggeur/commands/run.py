"""``ggeur --cfg FILE``: runs an experiment on any engine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from federatedscope_ggeur.errors import ConfigError, did_you_mean
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.extras import all_of
from federatedscope_ggeur.version import __version__

from . import COMMANDS, PROGRAM, add_console_options, add_options, overview

_DRY_RUN = "--dry-run"
_OPTIONS = """
--cfg FILE: YAML file of the experiment
--engine: the engine: this package alone (default), or FederatedScope
--client_cfg FILE: YAML file with settings of single clients (only with FederatedScope)
--dry-run: only print the run's rows, bytes, memory and time; write nothing
"""
_EPILOG = f"""\
{overview()}

examples:
  %(prog)s --cfg ggeur_quickstart.yaml federate.total_round_num 5 ggeur.steps "[1]"
  %(prog)s --cfg ggeur_quickstart.yaml --dry-run
  %(prog)s --engine federatedscope --cfg ggeur_quickstart.yaml
"""


def run(arguments: Sequence[str]) -> int:
    """Run the experiment of a config; returns 2 without arguments."""
    parser = run_parser()
    options = parser.parse_args(arguments)
    if options.cfg is None:
        if arguments:
            parser.error(_what_is_missing(options.settings))
        parser.print_help()
        return 2
    options = _with_options_behind(parser, options)
    config, settings = find_config(options.cfg), options.settings
    # Imported here: torch takes seconds, and --help does not need it.
    launcher = all_of("engines").get(options.engine)
    if launcher is not None:
        if options.log_level is not None:
            raise ConfigError(
                "--quiet, --log-level: FederatedScope does not use these options; "
                "for less output, write verbose 0 after --cfg FILE"
            )
        if options.dry_run:
            raise ConfigError(
                f"{_DRY_RUN}: only the embedded engine has this option; FederatedScope "
                "sends the same bytes, so leave out --engine federatedscope"
            )
        return import_module(launcher).launch(config, settings, options.client_cfg)
    if options.client_cfg is not None:
        raise ConfigError(
            f"--client_cfg: --engine {options.engine} gives all clients the same "
            "settings; for settings of single clients, use --engine federatedscope"
        )
    from federatedscope_ggeur.cfg_ggeur.load import load_config

    cfg = load_config(config, settings)
    if options.dry_run:
        from .dry_run import show_forecast

        return show_forecast(cfg)
    from .console import run_with_files

    return run_with_files(cfg, options.log_level)


def run_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Run a federated experiment.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    engines = {"choices": ("embedded", *all_of("engines")), "default": "embedded"}
    add_options(parser, _OPTIONS, engine=engines)
    add_console_options(parser)
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "settings",
        nargs=argparse.REMAINDER,
        metavar="KEY VALUE",
        help="override settings of the file",
    )
    return parser


def _with_options_behind(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> argparse.Namespace:
    """Add options that stand after the settings to `options`.

    argparse takes them for settings. A setting's value that begins with ``--`` stays a
    value.
    """
    words, settings = list(options.settings), []
    while words and not words[0].startswith("--"):
        settings += words[:2]
        words = words[2:]
    options.settings = []
    if words:
        options = parser.parse_args(words, options)
        options = _with_options_behind(parser, options)
    options.settings = settings + options.settings
    return options


def _what_is_missing(words: Sequence[str]) -> str:
    """A text that says what is wrong in a command line without ``--cfg FILE``."""
    if not words or "." in words[0] or any(word.startswith("--cfg") for word in words):
        return "--cfg FILE is missing; write it before the settings"
    return (
        f"unknown command '{words[0]}'; the commands are {', '.join(COMMANDS)}; "
        f"to run an experiment, begin with --cfg FILE{did_you_mean(words[0], COMMANDS)}"
    )
