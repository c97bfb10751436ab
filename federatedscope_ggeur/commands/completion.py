"""Completes commands and their options when a shell's Tab key is pressed."""

from __future__ import annotations

import os
from argparse import ArgumentParser

import argcomplete

from . import COMMANDS, find_command


def complete() -> None:
    """Answer a shell's request for completions, and exit.

    The request comes in environment variables of the package `argcomplete`. The parser
    of a command completes itself when the command asks it to parse.
    """
    words = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])].split(" ")
    if words[1] in COMMANDS and len(words) > 2:
        os.environ["_ARGCOMPLETE"] = "2"  # the words from the command on
        parse = ArgumentParser.parse_known_args

        def answer(self: ArgumentParser, *given, **named):
            ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]
            argcomplete.autocomplete(self)

        ArgumentParser.parse_known_args = answer  # type: ignore[assignment, method-assign]
        find_command(words[1])([])
    from .run import run_parser

    whole = run_parser()
    settings = next(a for a in whole._actions if a.dest == "settings")
    settings.completer = lambda **given: list(COMMANDS)  # type: ignore[attr-defined]
    argcomplete.autocomplete(whole)
