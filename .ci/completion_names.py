"""Write what shells complete, from the commands' parsers and the settings themselves.

    python .ci/completion_names.py

Pressing Tab must not import torch, as asking the parts would.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from unittest import mock

from federatedscope_ggeur.cfg_ggeur.fs_keys import fs_keys
from federatedscope_ggeur.cfg_ggeur.keys import all_keys
from federatedscope_ggeur.cfg_ggeur.load import default_config
from federatedscope_ggeur.commands import COMMANDS, find_command
from federatedscope_ggeur.commands.run import run
from federatedscope_ggeur.data import IMAGE_READERS, READERS, SPLITTERS, SUFFIX
from federatedscope_ggeur.settings import flatten

FILE = Path(__file__).parent.parent / "federatedscope_ggeur/commands/completion.json"


class _Made(Exception):
    """Carries a command's parser."""


def parser_of(command) -> argparse.ArgumentParser:
    """The parser that `command` asks, caught when it is asked."""

    def caught(self, *ignored, **named):
        raise _Made(self)

    asked = mock.patch.object(argparse.ArgumentParser, "parse_known_args", caught)
    with asked, contextlib.suppress(SystemExit):
        try:
            command(["--cfg", "x"])
        except _Made as made:
            return made.args[0]
    raise SystemExit(f"{command} asks no parser")


def _described(parser: argparse.ArgumentParser) -> dict[str, dict]:
    """``options`` by name, and in order ``words``, which stand without one."""
    options, words = {}, []
    for action in parser._actions:
        about = {"help": (action.help or "").replace("%(default)s", "")}
        if action.nargs != 0:
            about["takes"] = action.metavar or action.dest.upper()
        if action.choices:
            about["choices"] = list(action.choices)
        if action.nargs in ("*", "+", argparse.REMAINDER):
            about["many"] = True
        options |= dict.fromkeys(action.option_strings, about)
        words += [] if action.option_strings else [about]
    return {"options": options, "words": words}


def _values() -> dict[str, list[str]]:
    """Every key, and the values that it may have where those are few."""
    found = {name: _choices(value) for name, value in flatten(default_config())}
    keys = {f"ggeur.{key.name}": key for key in all_keys()}
    keys |= {key.name: key for key in fs_keys()}
    for name, key in keys.items():
        choices = getattr(getattr(key, "rule", None), "choices", None)
        if choices and name in found:
            found[name] = [str(choice) for choice in choices if choice != ""]
    found[READERS.field] = [f"{name}{SUFFIX}" for name in (*READERS, *IMAGE_READERS)]
    found[SPLITTERS.field] = list(SPLITTERS)
    return dict(sorted(found.items()))


def _choices(default: object) -> list[str]:
    return ["False", "True"] if isinstance(default, bool) else []


def names() -> str:
    """The file, as JSON: ``commands`` by name, "" for a run, and ``keys``."""
    commands = {"": run, **{name: find_command(name) for name in COMMANDS}}
    described = {name: _described(parser_of(c)) for name, c in commands.items()}
    return json.dumps({"commands": described, "keys": _values()}, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(names(), encoding="utf-8")
