"""The parser of a command."""

import argparse
import contextlib
from unittest import mock


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
    raise AssertionError(f"{command} asks no parser")
