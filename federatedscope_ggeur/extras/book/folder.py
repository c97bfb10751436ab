"""A folder whose files change together: after a kill all are old, or all are new.

A change first writes new files beside the old ones. Then one atomic write of a journal
makes the change final. After a kill, `Folder.finish` repeats all that the journal
lists, deletions included. Another person may have written the folder: readers change
nothing, and a journal can only name files within the folder. What else a change does,
it does last, by a function that is called again after a kill.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from federatedscope_ggeur.errors import ConfigError, DataError, listed
from federatedscope_ggeur.files import path_below, read_regular, write_atomically
from federatedscope_ggeur.lock import locked, shared

T = TypeVar("T")

_STAGED, _JOURNAL, _LOCK = "staged", "journal.json", ".lock"
#: Without a lock, a reader looks so often, and waits so many seconds in between.
_LOOKS, _BETWEEN = 25, 0.2


class Folder:
    """Files that change together.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Lock the folder for a change.

        Raises
        ------
        ConfigError
            The folder cannot be written, or an earlier change was interrupted.
        """
        with locked(self.path / _LOCK, self._name, _unusable):
            self._refuse_interrupted()
            try:
                self._drop_staged()
            except OSError as error:
                raise _unusable(self.path, error) from error
            yield

    def reading(self, read: Callable[[], T]) -> T:
        """Call `read` while no change is under way; nothing is written.

        Raises
        ------
        ConfigError
            A change was interrupted.
        """
        with shared(self.path / _LOCK, self._name) as is_held:
            if is_held:
                self._refuse_interrupted()
                return read()
        for _ in range(_LOOKS):
            before = self._version()
            if before is not None:
                try:
                    found = read()
                except DataError:
                    if self._version() == before:
                        raise
                else:
                    if self._version() == before:
                        return found
            time.sleep(_BETWEEN)
        self._refuse_interrupted()
        raise ConfigError(f"{self._name} changes all the time; try again later")

    def finish(self, last: Callable[[], object]) -> bool:
        """Finish an interrupted change; returns whether there was one.

        `last` is as in `change`.

        Raises
        ------
        ConfigError
            The folder cannot be written.
        DataError
            The journal is damaged, or names files outside the folder.
        """
        with locked(self.path / _LOCK, self._name, _unusable):
            was_interrupted = self._journal().exists()
            try:
                self._settle(last)
            except OSError as error:
                raise _unusable(self.path, error) from error
            return was_interrupted

    def read(self, name: str) -> bytes:
        """The bytes of a file in the folder.

        Raises
        ------
        DataError
            The file cannot be read, or it is a link, a device or a pipe.
        """
        try:
            return read_regular(path_below(self.path, name))
        except OSError as error:
            raise DataError(f"'{self.path / name}' cannot be read: {error}") from error

    def change(
        self,
        files: Mapping[str, bytes],
        gone: Iterable[str] = (),
        last: Callable[[], object] = lambda: None,
    ) -> None:
        """Write `files` and delete `gone`, as one change.

        Parameters
        ----------
        files : mapping from str to bytes
            The content by path within the folder.
        gone : iterable of str
            Paths within the folder of files or folders to delete. A missing one is
            ignored.
        last : callable, optional
            It is called when the files are changed. The change is over when it
            returns.

        Raises
        ------
        ConfigError
            A file cannot be written. Then either nothing has changed, or `finish`
            completes the change.
        """
        try:
            (self.path / _STAGED).mkdir()
            for place, data in enumerate(files.values()):
                staged = self.path / _STAGED / str(place)
                write_atomically(staged, data, mode=0o600)
            _sync(self.path / _STAGED)
            decided = {"files": list(files), "gone": list(gone)}
            write_atomically(self.path / _JOURNAL, json.dumps(decided))
            _sync(self.path)
            self._settle(last)
        except OSError as error:
            raise _unusable(self.path, error) from error

    @property
    def _name(self) -> str:
        return f"the book '{self.path}'"

    def _journal(self) -> Path:
        return path_below(self.path, _JOURNAL)

    def _version(self) -> tuple | None:
        """What changes with each change; None while one is under way."""
        if self._journal().exists():
            return None
        with suppress(OSError):
            about = os.stat(self.path / "book.json")
            return about.st_mtime_ns, about.st_ino
        return ()

    def _decided(self) -> tuple[list[str], list[str]]:
        """The files that the journal writes, and what it deletes."""
        try:
            decided = json.loads(self.read(_JOURNAL))
            files, gone = decided["files"], decided["gone"]
            if not all(isinstance(name, str) for name in [*files, *gone]):
                raise ValueError("a name is no text")
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"'{self._journal()}' is damaged: {error}") from error
        for name in [*files, *gone]:
            path_below(self.path, name)
        return files, gone

    def _refuse_interrupted(self) -> None:
        """Raise `ConfigError` if there is a journal, with what it would do."""
        if not self._journal().exists():
            return
        new, gone = (listed(names, 3) or "nothing" for names in self._decided())
        raise ConfigError(
            f"{self._name}: a change was interrupted. It writes {new} and removes "
            f"{gone}. To finish it: ggeur update {self.path} --finish"
        )

    def _settle(self, last: Callable[[], object]) -> None:
        if self._journal().exists():
            files, gone = self._decided()
            for place, name in enumerate(files):
                target = self.path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # moved before the kill
                    os.replace(path_below(self.path, f"{_STAGED}/{place}"), target)
                _sync(target.parent)
            for name in gone:
                remove(self.path / name)
            last()
        self._drop_staged()
        remove(self._journal())

    def _drop_staged(self) -> None:
        remove(self.path / _STAGED)
        for left in self.path.glob(".*.tmp"):
            left.unlink()


def remove(path: Path) -> None:
    """Delete a file, a link or a folder with all of it; ignore a missing one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            path.unlink()
    if path.parent.is_dir():
        _sync(path.parent)


def _sync(folder: Path) -> None:
    """Let the folder's entries survive a power cut, if the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _unusable(path: Path, error: Exception) -> ConfigError:
    return ConfigError(f"the book '{path}' cannot be changed: {error}")
