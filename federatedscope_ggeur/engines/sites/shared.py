"""The shared folder: files of others are read with care, own files appear whole."""

from __future__ import annotations

import time
from pathlib import Path

from federatedscope_ggeur.engines.sites.store import file_name
from federatedscope_ggeur.errors import ConfigError, DataError, MessageError
from federatedscope_ggeur.files import path_below, read_regular, write_once

#: The folders of the server's files and of the sites' files.
TO, FROM = "to", "from"
#: Seconds between two looks into the folder.
_SHORTEST, _LONGEST = 0.05, 5.0


class SharedFolder:
    """A folder that anybody may write. Its content is never listed.

    Parameters
    ----------
    root : path

    Raises
    ------
    ConfigError
        It is no folder.
    """

    def __init__(self, root: Path):
        self.root = root
        if not root.is_dir():
            raise ConfigError(
                f"--folder: '{root}' is no folder; make it, or wait until it is there"
            )

    @staticmethod
    def name(way: str, site: str, number: int) -> str:
        return f"{way}/{site}/{file_name(number)}"

    def publish(self, name: str, data: bytes) -> None:
        """Write a file, unless it is there with the same bytes.

        Raises
        ------
        ConfigError
            It cannot be written, or another one is in its place.
        """
        try:
            path = path_below(self.root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_once(path, data)
        except (OSError, DataError) as error:
            problem = getattr(error, "strerror", None) or error
            raise ConfigError(f"--folder: cannot write '{name}': {problem}") from error

    def read(self, name: str, most: int) -> bytes | None:
        """The bytes of a file; None if it is not there (yet).

        Raises
        ------
        MessageError
            It is a link, a device, a pipe or a folder, or longer than `most` bytes.
        """
        try:
            return read_regular(path_below(self.root, name), most, follow=False)
        except FileNotFoundError:
            return None
        except (OSError, DataError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            raise MessageError(problem, field="file", sender=f"'{name}'") from error

    def holds(self, name: str) -> bool:
        """Whether anything has this name. Raises `ConfigError` if it is a link."""
        try:
            return path_below(self.root, name).exists()
        except (OSError, DataError) as error:
            problem = getattr(error, "strerror", None) or error
            raise ConfigError(f"--folder: '{name}': {problem}") from error


class Looking:
    """The pauses between looks into the folder: short ones after something happened."""

    def __init__(self) -> None:
        self.found()

    def found(self) -> None:
        """Note that something has happened."""
        self._pause = _SHORTEST

    def wait(self, most: float | None = None) -> None:
        """Sleep until the next look, at most so many seconds."""
        time.sleep(self._pause if most is None else min(self._pause, most))
        self._pause = min(_LONGEST, 2 * self._pause)
