"""The private store of one side of a run: what it has written and what it has taken."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federatedscope_ggeur.crypto import new_secret
from federatedscope_ggeur.errors import ConfigError, DataError, MessageError, refusing
from federatedscope_ggeur.files import (
    path_below,
    read_regular,
    remove_unfinished,
    write_once,
)
from federatedscope_ggeur.lock import locked
from federatedscope_ggeur.reporting import RESULTS_FILE

from .keys import Identity, private_folder, unusable
from .sealed import Channel, Context, is_file_of, same_but_signature, sha256

RUN = "run.json"
_PRIVATE = 0o600

#: The folders of the server's files and of the sites' files.
TO, FROM = "to", "from"
#: Seconds between two looks into the folder.
_SHORTEST, _LONGEST = 0.05, 5.0


def file_name(number: int) -> str:
    """The name of a side's file `number`."""
    return f"{number:04d}.msg"


def run_folder(run: str) -> str:
    """The name of the store of a run."""
    return f"run_{run[:16]}"


def make_run_folder(folder: Path) -> None:
    """Make the folder of a side's results, unless it is there.

    Raises
    ------
    ConfigError
        It cannot be made.
    """
    with refusing(f"outdir: '{folder}'"):
        folder.mkdir(parents=True, exist_ok=True)


def refuse_other_results(folder: Path) -> None:
    """Raise `ConfigError` if the folder of a new run has the results of another one."""
    if (folder / RESULTS_FILE).exists():
        raise ConfigError(
            f"expname: '{folder}' holds the results of another run; name another one"
        )


class Store:
    """A folder of files that are written once, each synced before anything follows.

    A private store is never restored from a backup: this side would write other bytes
    under a number that it has used.

    Parameters
    ----------
    folder : path

    Attributes
    ----------
    run : str
        The id of the run.
    secret : bytes
        This side's X25519 key of the run.
    began : float
        When the store was made, in seconds since 1970.
    shared : str
        The shared folder, as it was named then.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        with refusing(f"the store '{folder}' cannot be used", "it is broken"):
            said = json.loads(read_regular(folder / RUN))
            self.run, self.secret = said["run"], bytes.fromhex(said["secret"])
            self.began, self.shared = float(said["began"]), str(said["shared"])

    @classmethod
    def make(cls, folder: Path, run: str, shared: Path) -> Store:
        """Make the store of a new run. Raises `ConfigError` if it cannot be written."""
        private_folder(folder.parent)
        private_folder(folder)
        said = {
            "run": run,
            "secret": new_secret().hex(),
            "began": time.time(),
            "shared": str(shared),
        }
        write_once(folder / RUN, json.dumps(said), _PRIVATE)
        return cls(folder)

    @classmethod
    def of_folder(cls, keys: Path, shared: Path) -> Store | None:
        """The store below `keys` of a run in this shared folder; None without one."""
        stores = (cls(path.parent) for path in sorted(keys.glob(f"*/{RUN}")))
        return next((one for one in stores if one.shared == str(shared)), None)

    @contextmanager
    def at_work(self, results: Path, waits: bool) -> Iterator[None]:
        """A context in which no other process uses this store, nor writes `results`.

        What a killed process had not written whole is removed.

        Raises
        ------
        ConfigError
            The lock cannot be made.
        AtWork
            Another process is at work, and this one does not wait for it.
        """
        with locked(self.folder / "lock", "the store of this run", unusable, waits):
            for folder in (self.folder, results):
                remove_unfinished(folder)
            yield

    def keep(self, place: str, number: int, data: bytes) -> None:
        """Keep a file for good. Raises `ConfigError` if there is another one."""
        path = self._path(place, number)
        private_folder(path.parent)
        write_once(path, data, _PRIVATE)

    def read(self, place: str, number: int) -> bytes | None:
        """A file that was kept; None if there is none."""
        path = self._path(place, number)
        with (
            refusing(f"the store's '{path}' cannot be read"),
            suppress(FileNotFoundError),
        ):
            return read_regular(path, follow=False)
        return None

    @property
    def is_written(self) -> bool:
        """Whether this side has written all its results."""
        return self.read("written", 1) is not None

    def note_written(self) -> None:
        """Note that this side has written all its results."""
        self.keep("written", 1, b"")

    def note(self, number: int, entry: Mapping[str, Any]) -> None:
        """Add an entry to the journal, which is numbered from 1."""
        self.keep("journal", number, json.dumps(entry).encode())

    def journal(self) -> Iterator[dict[str, Any]]:
        """The entries of the journal, in order."""
        number = 1
        while (data := self.read("journal", number)) is not None:
            yield json.loads(data)
            number += 1

    def _path(self, place: str, number: int) -> Path:
        return self.folder / place / file_name(number)


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
        with refusing(f"--folder: cannot write '{name}'"):
            path = path_below(self.root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_once(path, data)

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

    def refuse_later(self, name: str, most: int, key: bytes, store: object) -> None:
        """Refuse a file of this side that its store has not written.

        Raises
        ------
        ConfigError
            It is there. The error says whether the public `key` has signed it.
        """
        try:
            data = self.read(name, most)
        except MessageError as error:
            raise ConfigError(f"--folder: {error}") from error
        if data is None:
            return
        if not is_file_of(key, data):
            raise ConfigError(
                f"--folder: '{name}' is there, but this side's key has not signed it: "
                "somebody else wrote it; find out who, and remove it"
            )
        raise ConfigError(
            f"--folder: '{name}' is there, but there is no store of it: '{store}' was "
            "lost or deleted, or is older than the folder. A private store is never "
            "restored from a backup; begin a new run in an empty folder (a site is put "
            "out, and the run goes on without it)"
        )


@dataclass
class Mail:
    """The files between this side of a run and another one, each way in order.

    Attributes
    ----------
    federation, peer : str
        The names of the server and of the other side.
    ways : (str, str)
        The shared folder's folders of the files that go out and that come in.
    places : (str, str)
        The store's places for them.
    channel : Channel or None
        None until the other side's greeting has come.
    written, taken : int
        How many files this side has written, and has taken.
    last_written, last_taken : str
        The hashes of the last of these files.
    """

    shared: SharedFolder
    store: Store
    own: Identity
    federation: str
    peer: str
    ways: tuple[str, str]
    places: tuple[str, str]
    channel: Channel | None = None
    written: int = 0
    taken: int = 0
    last_written: str = ""
    last_taken: str = ""

    @property
    def out(self) -> Context:
        """What the next file is that goes out."""
        way, number = (self.own.name, self.peer), self.written + 1
        before = self.last_written, self.taken
        return Context(self.federation, self.store.run, *way, number, *before)

    @property
    def due(self) -> Context:
        """What the next file is that comes in."""
        way, number = (self.peer, self.own.name), self.taken + 1
        return Context(self.federation, self.store.run, *way, number, self.last_taken)

    def name(self, is_out: bool) -> str:
        """The name of the next file, out or in."""
        site = self.own.name if self.peer == self.federation else self.peer
        way, number = self.ways[not is_out], self.written if is_out else self.taken
        return self.shared.name(way, site, number + 1)

    def kept(self) -> bytes | None:
        """The next file that has come in, if it was kept."""
        return self.store.read(self.places[1], self.taken + 1)

    def find(self, most: int) -> bytes | None:
        """The next file that has come in, of at most so many bytes."""
        return self.kept() or self.shared.read(self.name(is_out=False), most)

    def keep(self, data: bytes) -> None:
        """Keep a file that is going to be taken."""
        self.store.keep(self.places[1], self.taken + 1, data)

    def open(self, data: bytes, key: bytes | None) -> tuple[bytes, int]:
        """The content of the next file, and what it answers; see `Channel.open`."""
        name = self.name(is_out=False)
        if key is None:
            raise MessageError("this side was put out", field="sender", sender=name)
        assert self.channel is not None, "the greeting comes first"
        return self.channel.open(data, self.due, key, name)

    def take(self, data: bytes) -> None:
        """Note that a file is taken."""
        self.taken, self.last_taken = self.taken + 1, sha256(data)

    def say(self, content: bytes) -> None:
        """Seal a content, and write it as the next file."""
        assert self.channel is not None, "the greeting comes first"
        self.write(self.channel.seal(self.out, content, self.own))

    def write(self, data: bytes) -> None:
        """Keep a file, or compare it with the one that was kept; then publish it.

        Raises
        ------
        ConfigError
            Another one was kept, or it cannot be written.
        """
        number = self.written + 1
        kept = self.store.read(self.places[0], number)
        if kept is None:
            self.store.keep(self.places[0], number, data)
        elif not same_but_signature(kept, data):
            raise ConfigError(
                f"file {number} to {self.peer} would differ from the one that this run "
                "has written: settings, rows, keys or this package's release have "
                "changed since it began; put them back as they were"
            )
        self.shared.publish(self.name(is_out=True), kept or data)
        self.written, self.last_written = number, sha256(kept or data)

    def check_store(self, most: int) -> None:
        """Refuse a store that is older than the folder; raises `ConfigError`."""
        name, folder = self.name(is_out=True), self.store.folder
        self.shared.refuse_later(name, most, self.own.key, folder)


class Looking:
    """The pauses between looks into the folder: short ones after something happened."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Look often again, since something has happened."""
        self._pause = _SHORTEST

    def wait(self, most: float | None = None) -> None:
        """Sleep until the next look, at most so many seconds."""
        time.sleep(self._pause if most is None else min(self._pause, most))
        self._pause = min(_LONGEST, 2 * self._pause)
