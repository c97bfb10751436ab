"""The commands: run a config, list the example configs, list the keys, doctor."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import federatedscope_ggeur
from federatedscope_ggeur.errors import ConfigError, GGEURError

PROGRAM = "federatedscope-ggeur"
EPILOG = """\
other commands:
  configs [FOLDER]   list the example configs, or copy them into FOLDER
  keys               list every ggeur.* setting with its default and meaning
  doctor             say what is installed and what is missing for which feature

example:
  %(prog)s --cfg ggeur_quickstart.yaml federate.total_round_num 5 ggeur.steps [1]
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command line; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands = {"configs": _configs, "keys": _keys, "doctor": _doctor}
    try:
        if arguments and arguments[0] in commands:
            return commands[arguments[0]](arguments[1:])
        return _run(arguments)
    except GGEURError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Run a federated experiment on the embedded engine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cfg", metavar="FILE", help="YAML file of the experiment")
    parser.add_argument(
        "--version", action="version", version=federatedscope_ggeur.__version__
    )
    parser.add_argument(
        "settings",
        nargs=argparse.REMAINDER,
        metavar="KEY VALUE",
        help="settings that go before those of the file",
    )
    options = parser.parse_args(arguments)
    if options.cfg is None:
        parser.print_help()
        return 2
    # Imported here: torch takes seconds, and --help needs none of it.
    from federatedscope_ggeur.engines.config import load_config
    from federatedscope_ggeur.engines.console import run_with_files

    return run_with_files(load_config(_find(options.cfg), options.settings))


def _find(name: str) -> Path:
    """The file `name`, or the example config of that name."""
    path = Path(name)
    if not path.exists() and path.name == name:
        example = example_folder() / name
        if example.exists():
            return example
    return path


def example_folder() -> Path:
    """Where the example configs are: in the package, or in a checkout beside it."""
    package = Path(federatedscope_ggeur.__file__).parent
    for folder in (
        package / "example_configs",
        package.parent / "scripts" / "example_configs",
    ):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"the example configs are not installed beside {package}; install the package "
        "again"
    )


def _configs(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} configs", description="List or copy the example configs."
    )
    parser.add_argument("folder", nargs="?", help="copy them here")
    options = parser.parse_args(arguments)
    files = sorted(example_folder().glob("*.yaml"))
    if options.folder is None:
        for file in files:
            title = file.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            print(f"{file.name}: {title}")
        print(f"\nrun one: {PROGRAM} --cfg {files[0].name}")
        return 0
    folder = Path(options.folder)
    taken = [file.name for file in files if (folder / file.name).exists()]
    if taken:
        raise ConfigError(
            f"{folder} already holds {', '.join(taken)}; nothing was copied"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, folder / file.name)
        print(folder / file.name)
    return 0


def _keys(arguments: Sequence[str]) -> int:
    argparse.ArgumentParser(
        prog=f"{PROGRAM} keys", description="List every ggeur.* setting."
    ).parse_args(arguments)
    from federatedscope_ggeur.cfg_ggeur import describe_keys

    print(describe_keys())
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    argparse.ArgumentParser(
        prog=f"{PROGRAM} doctor",
        description="Say what is installed and what is missing.",
    ).parse_args(arguments)
    from federatedscope_ggeur.doctor import diagnose

    report, healthy = diagnose()
    print(report)
    return 0 if healthy else 1
