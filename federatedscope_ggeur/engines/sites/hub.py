"""The server's end of a shared folder. It sends as `transport.Hub` does."""

from __future__ import annotations

from dataclasses import dataclass, field

from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.wire.schema import PLAIN
from federatedscope_ggeur.printable import get_logger

from .content import packed, unpacked
from .keys import Identity, Known
from .leading import FAILED, FINISH, JOIN
from .sealed import (
    Channel,
    Context,
    greeting,
    largest_file,
    read_greeting,
    same_but_signature,
    sha256,
)
from .store import FROM, TO, SharedFolder, Store
from .transport import Envelope, Event
from .transport.settings import TransportSettings

logger = get_logger(__name__)


@dataclass
class _Site:
    """What the server knows of one site.

    Attributes
    ----------
    number : int
        The client's number.
    channel : Channel or None
        None until the site's greeting has come.
    asked, taken : int
        How many files the server has written to the site, and has taken from it.
    last_asked, last_taken : str
        The hashes of the last of these files.
    connection : int
        How often the site has joined.
    most : int or None
        The largest size of its next answer in bytes.
    waiting : list of Envelope
        Messages that need no answer. They go out with the next one that does.
    is_out : bool
        Whether a line of ``known.txt`` has put it out.
    refused : str
        The reason why the file that lies there was refused, which is logged once.
    """

    name: str
    number: int
    channel: Channel | None = None
    asked: int = 0
    taken: int = 0
    last_asked: str = ""
    last_taken: str = ""
    connection: int = 0
    most: int | None = PLAIN
    waiting: list[Envelope] = field(default_factory=list)
    is_out: bool = False
    refused: str = ""


class FolderHub:
    """Writes the server's files, and takes the sites' files in order.

    Whatever it writes is kept in the store before it is published. If the run is
    replayed from the store, it compares each file with the one that it wrote before.

    Parameters
    ----------
    shared : SharedFolder
    store : Store
    own : Identity
    known : Known
    settings : TransportSettings

    Attributes
    ----------
    known : Known
        It may be replaced when the file has changed.
    """

    def __init__(
        self,
        shared: SharedFolder,
        store: Store,
        own: Identity,
        known: Known,
        settings: TransportSettings,
    ):
        self._shared, self._store, self._own = shared, store, own
        self.known, self._settings = known, settings
        self._answered = {k.message for k in all_kinds() if k.answer_message}
        self._sites: dict[str, _Site] = {}
        self._by_number: dict[int, _Site] = {}

    def new_site(self) -> str | None:
        """A known site that has not been greeted yet."""
        for name in self.known.names:
            if name not in self._sites and self.known.key(name, 1) is not None:
                return name
        return None

    def greet(self, name: str) -> None:
        """Greet a site; its client gets the next number."""
        site = _Site(name, len(self._sites) + 1)
        self._sites[name] = self._by_number[site.number] = site
        context = self._context_to(site)
        self._write(site, greeting(context, self._store.secret, site.number, self._own))

    def check_store(self) -> None:
        """Refuse a store that is older than the folder.

        Raises
        ------
        ConfigError
        """
        for site in self._sites.values():
            name = self._shared.name(TO, site.name, site.asked + 1)
            if self._shared.holds(name):
                raise ConfigError(
                    f"--folder: '{name}' is there, but the store "
                    f"'{self._store.folder}' has written only {site.asked} files: it "
                    "is older than the folder. A private store is never restored from "
                    "a backup; begin a new run in an empty folder"
                )

    # files of sites

    def find(self) -> tuple[str, int, bytes] | None:
        """The next file of any site that can be taken: site, number, bytes."""
        for site in self._sites.values():
            number, data = site.taken + 1, None
            if site.is_out or self.known.key(site.name, number) is None:
                continue
            try:
                data = self._store.read(self._taken(site), number) or (
                    self._shared.read(
                        self._shared.name(FROM, site.name, number), self._most(site)
                    )
                )
                if data is not None:
                    self._open(site, number, data)
            except MessageError as error:
                if site.refused != str(error):
                    site.refused = str(error)
                    logger.warning("%s", error)
                continue
            if data is not None:
                site.refused = ""
                return site.name, number, data
        return None

    def put_out(self) -> str | None:
        """A site that a line of ``known.txt`` puts out, and that is still in."""
        for site in self._sites.values():
            is_out = self.known.key(site.name, site.taken + 1) is None
            if is_out and not site.is_out:
                return site.name
        return None

    def keep(self, name: str, number: int, data: bytes) -> None:
        """Keep a file that is going to be taken."""
        self._store.keep(self._taken(self._sites[name]), number, data)

    def take(self, name: str, number: int, digest: str) -> list[Event]:
        """Take a kept file; what it says."""
        site = self._sites[name]
        data = self._store.read(self._taken(site), number)
        if data is None or sha256(data) != digest or number != site.taken + 1:
            raise ConfigError(
                f"the store '{self._store.folder}' cannot be used: file {number} of "
                f"{name} is missing or was changed"
            )
        content = self._open(site, number, data)
        site.taken, site.last_taken = number, digest
        if content is None:
            return []
        most = self._settings.max_message if site.most is None else site.most
        try:
            found = unpacked(content, self._settings, f"site {name}", lambda: most)
        except MessageError as error:
            connection = site.connection
            self.dismiss(site.number, str(error), connection)
            return [Event(site.number, None, str(error), True, connection)]
        events = []
        for envelope in found:
            site.connection += envelope.kind == JOIN
            events.append(Event(site.number, envelope, connection=site.connection))
        return events

    def leave_out(self, name: str) -> int:
        """Take no more files of a site; the number of its client."""
        self._sites[name].is_out = True
        return self._sites[name].number

    def names(self, numbers) -> list[str]:
        """The names of clients' sites."""
        found = self._by_number
        return [found[k].name if k in found else f"client {k}" for k in numbers]

    @staticmethod
    def _taken(site: _Site) -> str:
        return f"taken/{site.name}"

    def _most(self, site: _Site) -> int:
        most = self._settings.max_message if site.most is None else site.most
        return largest_file(most + PLAIN)

    def _open(self, site: _Site, number: int, data: bytes) -> bytes | None:
        """The content of a site's file; None for its greeting."""
        key = self.known.key(site.name, number)
        name = self._shared.name(FROM, site.name, number)
        if key is None:
            raise MessageError("this site was put out", field="sender", sender=name)
        before = site.last_taken
        federation, run = self._own.name, self._store.run
        context = Context(federation, run, site.name, federation, number, before)
        if site.channel is None:
            greeted = read_greeting(data, context, key, name)
            site.channel = Channel(self._store.secret, greeted.key)
            return None
        if number == 1:
            return None
        return site.channel.open(data, context, key, name)[0]

    # files of the server

    def send(self, number: int, envelope: Envelope) -> None:
        """Send a client a message; one that needs no answer waits for the next."""
        site = self._by_number.get(number)
        if site is None or site.is_out or site.channel is None:
            return
        site.waiting.append(envelope)
        if envelope.kind in self._answered or envelope.kind in (FINISH, FAILED):
            content = packed(site.waiting, self._settings)
            site.waiting = []
            context = self._context_to(site)
            self._write(site, site.channel.seal(context, content, self._own))

    def expect(self, number: int, most: int | None) -> None:
        """Set the largest size of the client's next answer, in bytes."""
        if number in self._by_number:
            self._by_number[number].most = most

    def dismiss(self, number: int, reason: str, connection: int | None) -> None:
        """Tell a site why it cannot take part."""
        site = self._by_number.get(number)
        if site is not None and connection in (None, site.connection):
            site.waiting = []
            self.send(number, Envelope(FAILED, 0, (reason.encode(),)))

    def close(self, reason: str = "") -> None:
        """Tell all sites why the run has failed, if there is a reason."""
        for number in self._by_number if reason else ():
            self.dismiss(number, reason, None)

    def _context_to(self, site: _Site) -> Context:
        return Context(
            self._own.name,
            self._store.run,
            self._own.name,
            site.name,
            site.asked + 1,
            site.last_asked,
            site.taken,
        )

    def _write(self, site: _Site, data: bytes) -> None:
        """Keep a file, or compare it with the one that was kept; then publish it."""
        number = site.asked + 1
        kept = self._store.read(f"asked/{site.name}", number)
        if kept is None:
            self._store.keep(f"asked/{site.name}", number, data)
        elif not same_but_signature(kept, data):
            raise ConfigError(
                f"file {number} to {site.name} would differ from the one that this "
                "run has written: settings, data, keys or this package's release have "
                "changed since the run began; put them back as they were"
            )
        written = kept or data
        self._shared.publish(self._shared.name(TO, site.name, number), written)
        site.asked, site.last_asked = number, sha256(written)
