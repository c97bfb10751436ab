"""Write a run's log.txt: all messages of the package, including debug messages."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from federatedscope_ggeur.errors import ConfigError

_PACKAGE = logging.getLogger("federatedscope_ggeur")


class _LogFile(logging.FileHandler):
    """A log file. If the disk is full, lines are lost, but the run goes on."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def close(self) -> None:
        with suppress(OSError):
            super().close()


@contextmanager
def logging_to(path: str | os.PathLike) -> Iterator[None]:
    """Append everything that the package logs inside this block to a file.

    Raises
    ------
    ConfigError
        The file cannot be made.
    """
    try:
        file = _LogFile(path, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write the log '{path}': {error.strerror or error}"
        ) from error
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with handled_by(file):
        yield


@contextmanager
def handled_by(handler: logging.Handler) -> Iterator[None]:
    """Give a handler all messages of the package inside this block.

    This does not depend on what other handlers show.
    """
    before = _PACKAGE.level
    _PACKAGE.setLevel(logging.DEBUG)
    _PACKAGE.addHandler(handler)
    try:
        yield
    finally:
        _PACKAGE.setLevel(before)
        _PACKAGE.removeHandler(handler)
        handler.close()
