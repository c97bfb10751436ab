"""The server's end of a shared folder. It sends as `transport.Hub` does."""

from __future__ import annotations

from dataclasses import dataclass, field

from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.federation.wire.schema import PLAIN
from federatedscope_ggeur.printable import get_logger

from .content import ends_file, packed, unpacked
from .keys import Identity, PinnedKeys
from .leading import JOIN, failed
from .sealed import Channel, greeting, largest_file, read_greeting, sha256
from .store import FROM, TO, Mail, SharedFolder, Store
from .transport import Envelope, Event
from .transport.settings import TransportSettings

logger = get_logger(__name__)

#: A site answers a file by one of its own, and may join again by a second one.
_MOST_ANSWERS = 2
#: A site that was told so often why it cannot take part is told no more.
_MOST_DISMISSALS = 20


@dataclass
class _Site:
    """What the server knows of one site.

    Attributes
    ----------
    number : int
        The client's number.
    mail : Mail
    answered, answers : int
        The last of the server's files that it has answered, and by how many files.
    dismissals : int
        How often it was told why it cannot take part.
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
    mail: Mail
    answered: int = 0
    answers: int = 0
    dismissals: int = 0
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
    known : PinnedKeys
    settings : TransportSettings

    Attributes
    ----------
    known : PinnedKeys
        It may be replaced when the file has changed.
    """

    def __init__(
        self,
        shared: SharedFolder,
        store: Store,
        own: Identity,
        known: PinnedKeys,
        settings: TransportSettings,
    ):
        self._shared, self._store, self._own = shared, store, own
        self.known, self._settings = known, settings
        self._sites: dict[str, _Site] = {}
        self._by_number: dict[int, _Site] = {}

    def new_site(self) -> str | None:
        """A known site whose client has no number yet."""
        for name in self.known.names:
            if name not in self._sites and not self.known.is_out(name, 1):
                return name
        return None

    def number(self, name: str) -> None:
        """Give the client of a site the next number."""
        about = self._shared, self._store, self._own, self._own.name, name
        mail = Mail(*about, (TO, FROM), (f"asked/{name}", f"taken/{name}"))
        site = _Site(name, len(self._sites) + 1, mail)
        self._sites[name] = self._by_number[site.number] = site

    def ungreeted(self) -> str | None:
        """A site that can be greeted: two people have compared its words."""
        for site in self._sites.values():
            if not (site.mail.written or site.is_out) and self.known.key(site.name, 1):
                return site.name
        return None

    def greet(self, name: str) -> None:
        """Greet a site."""
        site, secret = self._sites[name], self._store.secret
        site.mail.write(greeting(site.mail.out, secret, site.number, self._own))

    def check_store(self) -> None:
        """Refuse a store that is older than the folder.

        Raises
        ------
        ConfigError
        """
        for site in self._sites.values():
            site.mail.check_store(largest_file(self._settings.max_message + PLAIN))

    # files of sites

    def find(self) -> tuple[str, int, bytes] | None:
        """The next file of any site that can be taken: site, number, bytes."""
        for site in self._sites.values():
            number, data = site.mail.taken + 1, None
            if site.is_out or not site.mail.written or not self._key(site):
                continue
            try:
                data = site.mail.find(largest_file(self._most(site) + PLAIN))
                if data is not None:
                    self._open(site, data)
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
            if self.known.is_out(site.name, site.mail.taken + 1) and not site.is_out:
                return site.name
        return None

    def keep(self, name: str, data: bytes) -> None:
        """Keep a file that is going to be taken."""
        self._sites[name].mail.keep(data)

    def take(self, name: str, number: int, digest: str) -> list[Event]:
        """Take a kept file; what it says."""
        site = self._sites[name]
        data = site.mail.kept()
        if data is None or sha256(data) != digest or number != site.mail.taken + 1:
            raise ConfigError(
                f"the store '{self._store.folder}' cannot be used: file {number} of "
                f"{name} is missing or was changed"
            )
        try:
            content, answered = self._open(site, data)
        except MessageError as error:
            raise ConfigError(
                f"known.txt: a file that this run has taken no longer fits its lines; "
                f"put them back as they were ({error})"
            ) from error
        site.mail.take(data)
        site.answers = 1 + site.answers * (answered == site.answered)
        site.answered = answered
        if content is None:
            return []
        most = self._most(site)
        try:
            envelopes = unpacked(content, self._settings, f"site {name}", lambda: most)
        except MessageError as error:
            connection = site.connection
            self.dismiss(site.number, str(error), connection)
            return [Event(site.number, None, str(error), True, connection)]
        events = []
        for envelope in envelopes:
            site.connection += envelope.kind == JOIN
            events.append(Event(site.number, envelope, connection=site.connection))
        return events

    def leave_out(self, name: str) -> int:
        """Take no more files of a site; the number of its client."""
        self._sites[name].is_out = True
        return self._sites[name].number

    def names(self, numbers) -> list[str]:
        """The names of clients' sites."""
        sites = self._by_number
        return [sites[k].name if k in sites else f"client {k}" for k in numbers]

    def _key(self, site: _Site) -> bytes | None:
        return self.known.key(site.name, site.mail.taken + 1)

    def _most(self, site: _Site) -> int:
        return self._settings.max_message if site.most is None else site.most

    def _open(self, site: _Site, data: bytes) -> tuple[bytes | None, int]:
        """The content of a site's file, None for its greeting; what it answers."""
        mail, key = site.mail, self._key(site)
        name = mail.name(is_out=False)
        if mail.taken == 0 and key is not None:
            greeted = read_greeting(data, mail.due, key, name)
            mail.channel = Channel(self._store.secret, greeted.key)
            return None, 0
        content, answered = mail.open(data, key)
        has_answered = site.answers == _MOST_ANSWERS and answered == site.answered
        if has_answered or not site.answered <= answered <= mail.written:
            problem = f"it answers file {answered}, and that is not due"
            raise MessageError(problem, field="answers", sender=name)
        return content, answered

    # files of the server

    def send(self, number: int, envelope: Envelope) -> None:
        """Send a client a message; one that needs no answer waits for the next."""
        site = self._by_number.get(number)
        if site is None or site.is_out or site.mail.channel is None:
            return
        site.waiting.append(envelope)
        if ends_file(envelope.kind):
            content = packed(site.waiting, self._settings)
            site.waiting = []
            site.mail.say(content)

    def expect(self, number: int, most: int | None) -> None:
        """Set the largest size of the client's next answer, in bytes."""
        if number in self._by_number:
            self._by_number[number].most = most

    def dismiss(self, number: int, reason: str, connection: int | None) -> None:
        """Tell a site why it cannot take part."""
        site = self._by_number.get(number)
        if site is not None and connection in (None, site.connection):
            site.waiting = []
            self.send(number, failed(reason))
            site.dismissals += 1
            site.is_out |= site.dismissals == _MOST_DISMISSALS

    def close(self, reason: str = "") -> None:
        """Tell all sites why the run has failed, if there is a reason."""
        for number in self._by_number if reason else ():
            self.dismiss(number, reason, None)
