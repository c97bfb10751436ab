"""File locks. The operating system frees them when the process that holds them ends."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)

_POLL_SECONDS = 0.2
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


class AtWork(Exception):
    """Another process holds the lock, and this one does not wait for it."""


@contextmanager
def locked(
    path: Path,
    what: str,
    problem: Callable[[Path, OSError], ConfigError],
    waits: bool = True,
    stays: bool = True,
) -> Iterator[None]:
    """Hold the lock `path`; wait if another process holds it.

    The lock file is made if it is missing. A killed process frees its lock. If the file
    system has no locks, nothing is locked: two processes may then do `what` at once.
    Even then, files that are written by rename stay whole.

    Parameters
    ----------
    path : Path
        The lock file. Its folder is made if it is missing.
    what : str
        The work that the lock protects, for the log.
    problem : callable
        Makes the error to raise if the file cannot be made.
    waits : bool
    stays : bool
        Whether the lock file stays; if not, it is removed at the end. Then no process
        may wait for it.

    Raises
    ------
    ConfigError
        The file cannot be made; the error is what `problem` returns.
    AtWork
        Another process holds the lock, and this one does not wait.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another person may have put a link there.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
    except OSError as error:
        raise problem(path, error) from error
    try:
        _wait(handle, what, _take, waits)
        if not stays and not _is_at(path, handle):
            raise AtWork  # its holder removed it in between
        try:
            yield
        finally:
            if not stays:
                with suppress(OSError):
                    path.unlink()
    finally:
        with suppress(OSError):
            _free(handle)
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    """Whether the open file `handle` is still the one at `path`."""
    with suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(handle))
    return False


@contextmanager
def shared(path: Path, what: str) -> Iterator[bool]:
    """Hold the lock `path` together with other readers, without writing anything.

    It yields whether the lock is held. It is not held if there is no lock file, if the
    file cannot be opened, or if the system has no such locks.

    Parameters
    ----------
    path : Path
        The lock file, as for `locked`.
    what : str
        The work that the lock protects, for the log.
    """
    try:
        handle = os.open(path, os.O_RDONLY | _NO_LINK)
    except OSError:
        yield False
        return
    try:
        yield _share is not None and _wait(handle, what, _share)
    finally:
        with suppress(OSError):
            _free(handle)
        os.close(handle)


def _wait(
    handle: int, what: str, take: Callable[[int], None], waits: bool = True
) -> bool:
    """Take a lock; returns whether the file system has locks."""
    told = False
    while True:
        try:
            take(handle)
            return True
        except OSError as error:
            if error.errno not in _TAKEN:
                logger.warning(
                    "cannot lock %s: %s; continuing without a lock", what, error
                )
                return False
            if not waits:
                raise AtWork from error
        if not told:
            logger.info("another process holds the lock for %s; waiting for it", what)
            told = True
        time.sleep(_POLL_SECONDS)


if sys.platform == "win32":
    import msvcrt

    _share = None

    def _take(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

    def _free(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _share(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _free(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
