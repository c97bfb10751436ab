"""The commands: run a config, list examples and keys, enable, disable, doctor."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import federatedscope_ggeur
from federatedscope_ggeur.errors import ConfigError, GGEURError

PROGRAM = "federatedscope-ggeur"
INTERRUPTED = 130
EPILOG = """\
other commands:
  configs [FOLDER]   list the example configs, or copy them into FOLDER
  keys               list every ggeur.* setting with its default and meaning
  enable [FOLDER]    let FederatedScope (in FOLDER) load the plugin
  disable [FOLDER]   undo that
  embed --cfg FILE   embed the images of a data set beforehand
  inspect --cfg FILE draw who holds what, and how alike the domains' shapes are
  predict --run FOLDER IMAGE...
                     classify images by the head of a run
  token SECRET N     make client N's join token for a distributed run
  doctor             say what is installed and what is missing for which feature

examples:
  %(prog)s --cfg ggeur_quickstart.yaml federate.total_round_num 5 ggeur.steps [1]
  %(prog)s --engine federatedscope --cfg ggeur_quickstart.yaml
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command line; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in COMMANDS:
            return COMMANDS[arguments[0]](arguments[1:])
        return _run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except GGEURError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Run a federated experiment.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cfg", metavar="FILE", help="YAML file of the experiment")
    parser.add_argument(
        "--engine",
        choices=("embedded", "federatedscope"),
        default="embedded",
        help="what runs it: this package alone (default), or FederatedScope",
    )
    parser.add_argument(
        "--client_cfg",
        metavar="FILE",
        help="YAML file of single clients' settings (FederatedScope only)",
    )
    parser.add_argument(
        "--version", action="version", version=federatedscope_ggeur.__version__
    )
    parser.add_argument(
        "settings",
        nargs=argparse.REMAINDER,
        metavar="KEY VALUE",
        help="override settings of the file",
    )
    options = parser.parse_args(arguments)
    if options.cfg is None:
        if arguments:
            parser.error(_what_is_missing(options.settings))
        parser.print_help()
        return 2
    config = _find(options.cfg)
    # Imported here: torch takes seconds, and --help needs none of it.
    if options.engine == "federatedscope":
        from federatedscope_ggeur.engines.fs.launch import launch

        return launch(config, options.settings, options.client_cfg)
    if options.client_cfg is not None:
        raise ConfigError(
            "--client_cfg: the embedded engine gives all clients the same settings; "
            "run it with --engine federatedscope"
        )
    from federatedscope_ggeur.cfg_ggeur.load import load_config
    from federatedscope_ggeur.commands.run import run_with_files

    return run_with_files(load_config(config, options.settings))


def _what_is_missing(words: Sequence[str]) -> str:
    """What is wrong with a command line that has no ``--cfg FILE`` before settings."""
    if not words or "." in words[0] or any(word.startswith("--cfg") for word in words):
        return "--cfg FILE is missing; settings go behind it"
    return (
        f"unknown command '{words[0]}'; the commands are {', '.join(COMMANDS)}; "
        "to run an experiment, begin with --cfg FILE"
    )


def _find(name: str) -> Path:
    """The file `name`, or the example config of that name."""
    path = Path(name)
    # os.path: a name that the system does not take is one that does not exist.
    if os.path.exists(path):
        return path
    example = example_folder() / path.name
    if path.name == name and os.path.exists(example):
        return example
    raise ConfigError(
        f"--cfg: the file '{path}' does not exist; `{PROGRAM} configs` lists the "
        "bundled ones"
    )


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
        print(f"\nrun one: {PROGRAM} --cfg ggeur_quickstart.yaml")
        return 0
    try:
        _copy(files, Path(options.folder))
    except OSError as error:
        where = error.filename2 or error.filename or options.folder
        raise ConfigError(
            f"cannot copy the example configs into '{options.folder}': "
            f"{error.strerror or error}: '{where}'"
        ) from error
    return 0


def _copy(files: Sequence[Path], folder: Path) -> None:
    if os.path.lexists(folder) and not folder.is_dir():
        raise ConfigError(f"'{folder}' is not a folder; nothing was copied")
    taken = [file.name for file in files if os.path.lexists(folder / file.name)]
    if taken:
        raise ConfigError(
            f"{folder} already holds {', '.join(taken)}; nothing was copied"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, folder / file.name)
        print(folder / file.name)


def _keys(arguments: Sequence[str]) -> int:
    argparse.ArgumentParser(
        prog=f"{PROGRAM} keys", description="List every ggeur.* setting."
    ).parse_args(arguments)
    from federatedscope_ggeur.cfg_ggeur import describe_keys

    print(describe_keys())
    return 0


def _embed(arguments: Sequence[str]) -> int:
    from federatedscope_ggeur.commands.embed import embed

    return embed(arguments, f"{PROGRAM} embed", _find)


def _inspect(arguments: Sequence[str]) -> int:
    from federatedscope_ggeur.commands.inspect import inspect

    return inspect(arguments, f"{PROGRAM} inspect", _find)


def _predict(arguments: Sequence[str]) -> int:
    from federatedscope_ggeur.commands.predict import predict

    return predict(arguments, f"{PROGRAM} predict")


def _enable(arguments: Sequence[str]) -> int:
    from federatedscope_ggeur.engines.fs import install

    folder = _fs_folder("enable", "Let FederatedScope load the plugin.", arguments)
    print(install.enable(folder))
    print(f"run: {install.run_command(folder)}")
    return 0


def _disable(arguments: Sequence[str]) -> int:
    from federatedscope_ggeur.engines.fs import install

    folder = _fs_folder("disable", "Undo enable; nothing else changes.", arguments)
    print(install.disable(folder))
    return 0


def _fs_folder(name: str, description: str, arguments: Sequence[str]) -> str | None:
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} {name}", description=description)
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="FOLDER",
        help="FederatedScope's checkout or package folder (default: the one that can "
        "be imported, else FEDERATEDSCOPE_HOME)",
    )
    return parser.parse_args(arguments).folder


def _doctor(arguments: Sequence[str]) -> int:
    argparse.ArgumentParser(
        prog=f"{PROGRAM} doctor",
        description="Say what is installed and what is missing.",
    ).parse_args(arguments)
    from federatedscope_ggeur.commands.doctor import diagnose

    report, healthy = diagnose()
    print(report)
    return 0 if healthy else 1


def _token(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} token",
        description="Make the join token of one client of a distributed run; put it "
        "into a file on the client and name that in ggeur.join_token.",
    )
    parser.add_argument(
        "secret", help="the server's secret file (ggeur.join_secret); made if missing"
    )
    parser.add_argument("number", type=int, help="the client's number")
    options = parser.parse_args(arguments)
    if options.number < 1:
        parser.error(f"clients are numbered from 1, got {options.number}")
    from federatedscope_ggeur.transport.security import (
        Security,
        make_secret,
        make_token,
    )

    if make_secret(options.secret):
        print(f"made the secret {options.secret}", file=sys.stderr)
    print(make_token(Security(join_secret=options.secret).secret(), options.number))
    return 0


COMMANDS = {
    "configs": _configs,
    "keys": _keys,
    "enable": _enable,
    "disable": _disable,
    "token": _token,
    "doctor": _doctor,
    "embed": _embed,
    "inspect": _inspect,
    "predict": _predict,
}
