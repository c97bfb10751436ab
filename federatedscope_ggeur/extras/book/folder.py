"""A folder whose files change together: after a kill all are old, or all are new.

A change first writes new files beside the old ones. Then one atomic write of a journal
makes the change final. After a kill, `Folder.finish` repeats all that the journal
lists, deletions included. Another person may have written the folder: readers change
nothing, and a journal can only name files within the folder. What else a change does,
it does last, by a function that is called again after a kill.

Where a run with a book writes, and the marks that let a book delete there.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hmac import compare_digest
from pathlib import Path
from typing import Any, TypeVar

from federatedscope_ggeur.errors import ConfigError, DataError, listed
from federatedscope_ggeur.files import (
    path_below,
    read_regular,
    sync_folder,
    write_atomically,
)
from federatedscope_ggeur.lock import locked, shared
from federatedscope_ggeur.reporting.run_files import (
    CHECKPOINT_ENDS,
    MADE_FILES,
    SETTINGS_FILES,
)

T = TypeVar("T")

STAGED, JOURNAL, _LOCK = "staged", "journal.json", ".lock"


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
        with shared(self.path / _LOCK, self._name):
            self._refuse_interrupted()
            return read()

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
            place, problem = self.path / name, error.strerror or error
            raise DataError(f"'{place}' cannot be read: {problem}") from error

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
            (self.path / STAGED).mkdir()
            for place, data in enumerate(files.values()):
                staged = self.path / STAGED / str(place)
                write_atomically(staged, data, mode=0o600)
            sync_folder(self.path / STAGED)
            decided = {"files": list(files), "gone": list(gone)}
            write_atomically(self.path / JOURNAL, json.dumps(decided))
            sync_folder(self.path)
            self._settle(last)
        except OSError as error:
            raise _unusable(self.path, error) from error

    @property
    def _name(self) -> str:
        return f"the book '{self.path}'"

    def _journal(self) -> Path:
        return path_below(self.path, JOURNAL)

    def _decided(self) -> tuple[list[str], list[str]]:
        """The files that the journal writes, and what it deletes."""
        try:
            decided = json.loads(self.read(JOURNAL))
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
                    os.replace(path_below(self.path, f"{STAGED}/{place}"), target)
                sync_folder(target.parent)
            for name in gone:
                remove(self.path / name)
            last()
        self._drop_staged()
        remove(self._journal())

    def _drop_staged(self) -> None:
        remove(self.path / STAGED)
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
        sync_folder(path.parent)


def _unusable(path: Path, error: OSError) -> ConfigError:
    problem = error.strerror or error
    return ConfigError(f"the book '{path}' cannot be changed: {problem}")


_MARK = "book.mark"


@dataclass(frozen=True)
class RunPlaces:
    """Where a run writes.

    Attributes
    ----------
    path : str
        The run's folder, absolute.
    saved : str
        The checkpoint that the user named, or the folder in which the run keeps what
        came in; absolute. "" if there is neither.
    """

    path: str
    saved: str = ""

    @classmethod
    def of(cls, folder: str | os.PathLike, saved: str = "") -> RunPlaces:
        """Of a run's folder and ``federate.save_to``."""
        return cls(os.path.abspath(folder), os.path.abspath(saved) if saved else "")

    @classmethod
    def of_plain(cls, value: Mapping[str, Any]) -> RunPlaces:
        """Of plain values of JSON; raises `KeyError` or `TypeError`."""
        path, saved = value["path"], value.get("saved", "")
        for place in (path, saved or path):
            if not isinstance(place, str) or not os.path.isabs(place):
                raise TypeError("the place of a run is no absolute path")
        return cls(path, saved)

    @property
    def exists(self) -> bool:
        """Whether the run's folder or checkpoint is there."""
        return any(True for _ in self._marks(there=True))

    def mark(self, mark: Callable[[str], bytes], name_to_be: str = "") -> None:
        """Mark the places; `mark` returns the mark for a name.

        If `name_to_be` is given, the mark of the folder also holds under this name.

        Raises
        ------
        ConfigError
            A mark cannot be written.
        """
        for path, name in self._marks():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                problem = error.strerror or error
                raise ConfigError(f"cannot write '{path}': {problem}") from error
            names = [name]
            if name_to_be and path.parent == Path(self.path):
                names.append(name_to_be)
            write_atomically(path, b"\n".join(map(mark, names)), mode=0o600)

    def is_marked(self, mark: Callable[[str], bytes]) -> bool:
        """Whether each of the places that exist has its mark."""
        return all(
            any(compare_digest(known, mark(name)) for known in _content(path).split())
            for path, name in self._marks(there=True)
        )

    def clear(self) -> list[str]:
        """Delete what the run has written, and the marks; returns what is left there.

        The settings of the run stay.
        """
        folder, left = Path(self.path), []
        for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
            if name in SETTINGS_FILES or name == _MARK:
                continue
            if not any(fnmatchcase(name, made) for made in MADE_FILES):
                left.append(str(folder / name))
                continue
            try:
                remove(path_below(folder, name))
            except (DataError, OSError) as error:
                left.append(str(error))
        for path in self._checkpoint_files():
            with suppress(OSError):
                remove(path)
        for path, _ in self._marks():
            with suppress(OSError):
                path.unlink()
        return left

    def __str__(self) -> str:
        return f"'{self.path}'" + (f" and '{self.saved}'" if self.saved else "")

    def _marks(self, there: bool = False) -> Iterator[tuple[Path, str]]:
        """The files of the marks, and the names that they are of.

        If `there`, only those of places that exist.
        """
        if not there or os.path.lexists(self.path):
            yield Path(self.path) / _MARK, os.path.basename(self.path)
        ends = self._checkpoint_files()
        if self.saved and (not there or any(map(os.path.lexists, ends))):
            yield Path(f"{self.saved}.{_MARK}"), os.path.basename(self.saved)

    def _checkpoint_files(self) -> list[Path]:
        ends = CHECKPOINT_ENDS if self.saved else ()
        return [Path(self.saved + end) for end in ends]


def _content(path: Path) -> bytes:
    """The bytes of a mark; b"" if there is none."""
    try:
        return b"" if path.is_symlink() else read_regular(path)
    except OSError:
        return b""
