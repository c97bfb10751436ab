"""A folder whose files change together: after a kill all are old, or all are new.

A change first writes new files beside the old ones. Then one atomic write of a journal
makes the change final. After a kill, the next opening of the folder repeats all that
the journal lists, deletions included.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.lock import locked

_STAGED, _JOURNAL, _LOCK = "staged", "journal.json", ".lock"


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
        """Lock the folder, and finish or drop an interrupted change.

        Raises
        ------
        ConfigError
            The folder cannot be written.
        """
        with locked(self.path / _LOCK, f"the book '{self.path}'", _unusable):
            try:
                self._settle()
            except (OSError, ValueError, KeyError) as error:
                raise _unusable(self.path, error) from error
            yield

    def read(self, name: str) -> bytes:
        """The bytes of a file in the folder.

        Raises
        ------
        DataError
            The file cannot be read.
        """
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise DataError(f"'{self.path / name}' cannot be read: {error}") from error

    def change(self, files: Mapping[str, bytes], gone: Iterable[str] = ()) -> None:
        """Write `files` and delete `gone`, as one change.

        Parameters
        ----------
        files : mapping from str to bytes
            The content by path within the folder.
        gone : iterable of str
            Files or folders to delete. A relative path is within the folder. A missing
            file is ignored.

        Raises
        ------
        ConfigError
            A file cannot be written. Then either nothing has changed, or the next
            opening of the folder finishes the change.
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
            self._settle()
        except OSError as error:
            raise _unusable(self.path, error) from error

    def _settle(self) -> None:
        journal, staged = self.path / _JOURNAL, self.path / _STAGED
        if journal.exists():
            decided = json.loads(journal.read_text(encoding="utf-8"))
            for place, name in enumerate(decided["files"]):
                target = self.path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # moved before the kill
                    os.replace(staged / str(place), target)
                _sync(target.parent)
            for name in decided["gone"]:
                _remove(self.path / name)
        _remove(staged)
        _remove(journal)
        for left in self.path.glob(".*.tmp"):
            left.unlink()


def _remove(path: Path) -> None:
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
