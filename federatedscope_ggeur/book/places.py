"""Where a run with a book writes, and the marks that let a book delete there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path
from typing import Any

from federatedscope_ggeur.book.folder import remove
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.files import path_below, read_regular, write_atomically
from federatedscope_ggeur.reporting import (
    HEAD_FILE,
    OWN_FOLDER,
    RESULTS_FILE,
    STRANGENESS_FILE,
)

_MARK = "book.mark"
_CHECKPOINT_ENDS = ("", ".round0", ".clients")
#: What a run and FederatedScope write into a run's folder, all but the settings. Each
#: depends on clients' statistics, or names clients and their rows.
_MADE = (
    RESULTS_FILE,
    HEAD_FILE,
    OWN_FOLDER,
    STRANGENESS_FILE,
    "private",
    *(f"checkpoint{end}" for end in _CHECKPOINT_ENDS),  # of older releases
    "metrics.csv",
    "clients.csv",
    "curve.png",
    "change.json",
    "status.json",
    "log.txt",
    "report",
    "tensorboard",
    "wandb",
    "exp_print.log",
    "eval_results.log",
    "eval_results.raw",
    "eval_results.raw.gz",
    "system_metrics.log",
)
_KEPT = ("config.yaml",)


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

    def mark(self, mark: Callable[[str], bytes]) -> None:
        """Mark the places; `mark` returns the mark for a name.

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
            write_atomically(path, mark(name), mode=0o600)

    def is_marked(self, mark: Callable[[str], bytes]) -> bool:
        """Whether each of the places that exist has its mark."""
        return all(
            compare_digest(_content(path), mark(name))
            for path, name in self._marks(there=True)
        )

    def clear(self) -> list[str]:
        """Delete what the run has written, and the marks; returns what is left there.

        The settings of the run stay.
        """
        folder, left = Path(self.path), []
        for name in _MADE if folder.is_dir() else ():
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
        if folder.is_dir():
            others = sorted(set(os.listdir(folder)) - {*_KEPT, *_MADE})
            left += [str(folder / name) for name in others]
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
        ends = _CHECKPOINT_ENDS if self.saved else ()
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
