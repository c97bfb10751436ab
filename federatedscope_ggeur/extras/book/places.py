"""Where a run with a book writes, and the marks that let a book delete there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hmac import compare_digest
from pathlib import Path
from typing import Any

from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.files import path_below, read_regular, write_atomically
from federatedscope_ggeur.reporting.run_files import (
    CHECKPOINT_ENDS,
    MADE_FILES,
    SETTINGS_FILES,
)

from .folder import remove

_MARK = "book.mark"


@dataclass(frozen=True)
class RunPlaces:
    """Where a run writes.

    Attributes
    ----------
    path : str
        The run's folder, absolute.
    saved : str
        The checkpoint that the user named, absolute; "" if it is in the folder.
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
                raise ConfigError(f"cannot write '{path}': {error}") from error
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


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a new folder with `files`: all of them, or nothing.

    Raises
    ------
    ConfigError
        The folder exists, or cannot be written.
    """
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder '{path}': {error}") from error
    try:
        for name, data in files.items():
            write_atomically(path / name, data)
    except BaseException:
        with suppress(OSError):
            remove(path)
        raise


def _content(path: Path) -> bytes:
    """The bytes of a mark; b"" if there is none."""
    try:
        return b"" if path.is_symlink() else read_regular(path)
    except OSError:
        return b""
