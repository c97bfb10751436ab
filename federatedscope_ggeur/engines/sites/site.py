"""Takes part in a federation over a shared folder, as one site.

A site answers the server's files in order. It keeps each file and each answer before it
publishes anything. When it starts again, it answers the kept files once more: what it
remembers of them comes back, and each answer must be the one that it gave. Training and
scoring are not repeated: the method's own state is in the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.run_settings import experiment_name, use_threads
from federatedscope_ggeur.errors import (
    ConfigError,
    GGEURError,
    MessageError,
    without_folders,
)
from federatedscope_ggeur.federation.course.client_handler import (
    ClientHandler,
    ClientStore,
)
from federatedscope_ggeur.federation.exchanges.base import RequestKind
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EVALUATE
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.wire.schema import PLAIN
from federatedscope_ggeur.lock import AtWork
from federatedscope_ggeur.printable import get_logger

from . import store
from .content import ends_file, packed, unpacked
from .keys import Identity, PinnedKeys
from .leading import FAILED, FINISH, JOIN, failed, reason_of
from .roles import role_config, transport_settings
from .sealed import Channel, Context, greeting, largest_file, read_greeting
from .server import AT_WORK, ENGINE, check_folder_run, quiet
from .site_folder import Site, question
from .transport import Envelope
from .watch import Watch, closing

logger = get_logger(__name__)

#: What these leave at a client is in its `ClientStore`.
_KEPT_APART = (TRAIN, EVALUATE)


class Answers:
    """A client that gives its earlier answers again; see `SiteFolder`.

    Attributes
    ----------
    known : tuple of bytes or None
        The answer that the next request got before.
    """

    def __init__(self, handler: ClientHandler):
        self._handler, self.client = handler, handler.client
        self.known: tuple[bytes, ...] | None = None
        self._asked: Counter[RequestKind] = Counter()

    def answer(self, kind: RequestKind, parts: Sequence[bytes]) -> tuple[bytes, ...]:
        known, self.known = self.known, None
        self._asked[kind] += 1
        if known is not None and kind in _KEPT_APART:
            if self._asked[kind] <= kind.remembered:
                with suppress(GGEURError):  # it remembers what it was asked
                    self._handler.answer(kind, parts)
            return known
        made = self._handler.answer(kind, parts)
        if known is not None and made != known:
            raise ConfigError(
                f"the answer ({kind.name}) would differ from the one that this site "
                "has given: its rows or settings have changed since the run began; put "
                "them back as they were"
            )
        return made


def site_settings(name: str, number: int) -> dict[str, object]:
    """What the file of a site with this name need not say."""
    return {"ggeur.domain": name, "ggeur.client_number": number}


class Meeting:
    """A site's keys, and the server's greeting in the shared folder.

    Parameters
    ----------
    shared : path
    keys : path
        The folder of the site's keys; its stores are there, too.
    own : Identity

    Attributes
    ----------
    greeting : Greeting or None
        None if nothing has come yet that the server's pinned key has signed.

    Raises
    ------
    ConfigError
        The keys do not fit a site.
    """

    def __init__(self, shared: Path, keys: Path, own: Identity):
        self.shared, self.keys, self.own = store.SharedFolder(shared), keys, own
        self.known = PinnedKeys(keys, own, serves=False)
        if len(self.known.names) != 1 or own.name in self.known.names:
            raise ConfigError(
                f"'{keys}/known.txt' must hold the server's line alone; the person who "
                "leads the federation gets it by: ggeur serve --new"
            )
        (self.server,) = self.known.names
        pinned = self.known.key(self.server, 1)
        if pinned is None:
            raise ConfigError(
                f"'{keys}/known.txt' puts the server out, or nobody has compared the "
                f"words of {self.known.words[0]} by telephone; start this at a "
                "terminal, or with --yes once they are the same"
            )
        name = self.shared.name(store.TO, own.name, 1)
        self.first, self.greeting = None, None
        try:
            kept = store.Store.of_folder(keys, shared)
            self.first = self.shared.read(name, largest_file(0)) or (
                kept.read(store.TO, 1) if kept else None
            )
            if self.first is not None:
                wanted = Context(self.server, "", self.server, own.name, 1)
                self.greeting = read_greeting(self.first, wanted, pinned, name)
        except MessageError as error:  # another one may come, or the rest of this one
            logger.warning("%s", error)

    @property
    def settings(self) -> dict[str, object]:
        """What the site's file need not say: its domain and its client's number."""
        number = self.greeting.client if self.greeting else 1
        return site_settings(self.own.name, number)

    def own_store(self) -> store.Store:
        """The store of the run; a new one if the site has not written anything.

        Raises
        ------
        ConfigError
            The store is missing or broken, or it is of another run in this folder. Or
            it cannot be written.
        """
        assert self.greeting is not None, "the server has greeted this site"
        shared, run = self.shared, self.greeting.run
        folder = self.keys / store.run_folder(run)
        if (folder / store.RUN).exists():
            return store.Store(folder)
        if (earlier := store.Store.of_folder(self.keys, shared.root)) is not None:
            raise ConfigError(
                f"--folder: '{shared.root}' holds another run than before: the store "
                f"'{earlier.folder}' answers the earlier one. A new run takes a folder "
                "of another name"
            )
        first = shared.name(store.FROM, self.own.name, 1)
        shared.refuse_later(first, largest_file(0), self.own.key, folder)
        return store.Store.make(folder, run, shared.root)


class FolderSite:
    """Answers one run for one site.

    Parameters
    ----------
    cfg : CfgNode
    met : Meeting
        The server has greeted this site.
    """

    def __init__(self, cfg, met: Meeting):
        self._met = met
        self.folder = Path(cfg.outdir, experiment_name(cfg))
        self._carried, self._store = transport_settings(cfg), met.own_store()
        by_server = met.greeting
        assert by_server is not None, "the server has greeted this site"
        about = met.shared, self._store, met.own, met.server, met.server
        channel = Channel(self._store.secret, by_server.key)
        self._mail = store.Mail(
            *about, (store.FROM, store.TO), (store.FROM, store.TO), channel
        )
        self._most = largest_file(self._carried.max_message + PLAIN)
        self._doing = self._done = self._refused = ""
        self.over = False
        site = Site(cfg)
        self._number, self._join = site.number, site.join()
        if site.number != by_server.client:
            raise ConfigError(
                f"the server calls this site client {by_server.client}, but its "
                f"file says {site.number}; correct ggeur.client_number (or "
                "distribute.data_idx), or the order of lines in the server's known.txt"
            )
        self._state = ClientStore(self._store.folder / "state", site.number)
        self._answers = Answers(site.handler())
        self._leaves = site.leaves(self.folder, ENGINE, self._answers)

    def run(self, once: bool = False, again: bool = False) -> str:
        """Answer the server until the run is over.

        Parameters
        ----------
        once : bool
            Whether to answer only what is there.
        again : bool
            Whether to join again, after the site or the server has ended its part.

        Returns
        -------
        str
            A line that says what comes next.

        Raises
        ------
        GGEURError
            The server refused this site or ended the run; or an answer failed; or the
            folder or the store cannot be used.
        """
        store.make_run_folder(self.folder)
        if self._store.read(store.FROM, 1) is None:
            store.refuse_other_results(self.folder)
        role = f"site {self._met.own.name}"
        with (
            self._store.at_work(self.folder, waits=not once),
            closing(Watch(self.folder, role, lambda: {"doing": self._doing})) as watch,
        ):
            with quiet():
                ended = self._replay()
            self._mail.check_store(self._most)
            looking = store.Looking()
            while not self.over:
                if ended and not again:
                    raise GGEURError(f"{ended} (to join again: ggeur join ... --again)")
                if ended:
                    again = False
                    self._say([self._join])
                why = self._step()
                if why is None and once:
                    watch.close("running")
                    break
                if why is None:
                    looking.wait()
                else:
                    looking.reset()
                ended = why or ""
        return self._line()

    def _line(self) -> str:
        if self.over:
            return f"the run is over; the model is in {self.folder}"
        return f"{self._done or 'nothing new'}; awaited: {self._met.server}"

    # files of the server

    def _replay(self) -> str:
        """Answer the kept files once more; returns why this site has ended, or ""."""
        met, mail, ended = self._met, self._mail, ""
        assert met.first is not None, "the server has greeted this site"
        mail.keep(met.first)
        mail.take(met.first)
        mail.write(greeting(mail.out, self._store.secret, self._number, met.own))
        self._say([self._join])
        while (data := mail.kept()) is not None:
            is_done = self._store.read(store.TO, mail.taken + 2) is not None
            if not is_done and self._own(mail.taken + 1) is None:
                break  # it was kept, but not answered: `_step` does that
            ended = self._take(data)
            again = self._own(mail.taken)
            if again is not None and again.kind == JOIN:
                ended = ""
                self._say([self._join])
        return ended

    def _step(self) -> str | None:
        """Answer the next file; None without one, or else why this site ends, or ""."""
        try:
            data = self._mail.find(self._most)
            if data is None:
                return None
            self._open(data)
            self._mail.keep(data)
        except MessageError as error:
            if self._refused != str(error):
                self._refused = str(error)
                logger.warning("%s", error)
            return None
        return self._take(data)

    def _open(self, data: bytes) -> bytes:
        """The content of the server's next file."""
        known = PinnedKeys(self._met.keys, self._met.own, serves=False)
        key = known.key(self._met.server, self._mail.taken + 1)
        return self._mail.open(data, key)[0]

    def _take(self, data: bytes) -> str:
        """Answer the server's next file; returns why this site ends, or ""."""
        content, known = self._open(data), self._own(self._mail.taken + 1)
        self._mail.take(data)
        if known is None:
            self._begin_states()
        if known is not None and known.kind == FAILED:
            self._say([known])
            return known.parts[0].decode(errors="replace")
        try:
            asked = unpacked(content, self._carried, self._met.server)
            if any(ends_file(one.kind) for one in asked[:-1]):
                problem = "more than one question in a file"
                raise MessageError(problem, field="kind", sender=self._met.server)
            for envelope in asked:
                if envelope.kind == FAILED:
                    self._leaves.cut_off("failed")
                    return f"{self._met.server} says: {reason_of(envelope.parts)}"
                self._answer(envelope, known)
        except ConfigError:  # mended here; the server waits
            raise
        except GGEURError as error:
            self._say([failed(without_folders(str(error)))])
            self._leaves.cut_off("failed")
            return str(error)
        finally:
            self._doing = f"waiting for {self._met.server}"
        return ""

    def _answer(self, asked: Envelope, known: Envelope | None) -> None:
        if asked.kind == FINISH:
            if not self._store.is_written:
                self._leaves.end(asked.parts)
                self._store.note_written()
            self.over = True
            return
        kind = question(asked)
        what = f"{kind.name.replace('_', ' ')}, round {asked.state}"
        self._doing = f"answering: {what}"
        if known is not None and kind.answer_message == known.kind:
            self._answers.known = known.parts
        answer = self._leaves.reply(asked, kind)
        if answer:
            self._done = f"answered {what}"
            self._say([answer])

    def _begin_states(self) -> None:
        """From now on the store keeps the states of the client's method."""
        client = self._answers.client
        if client.on_state is None:
            client.states = self._state.load() or client.states
            client.on_state = lambda: self._state.save(client.states)

    # files of this site

    def _own(self, answers: int) -> Envelope | None:
        """What this site has answered to a file, if it is its next own file."""
        mail, number = self._mail, self._mail.written + 1
        data = self._store.read(store.FROM, number)
        if data is None or mail.channel is None:
            return None
        context, name = replace(mail.out, answers=0), f"store: {number}"
        content, answered = mail.channel.open(data, context, None, name)
        if answered != answers:
            return None
        (said,) = unpacked(content, self._carried, self._met.own.name)
        return said

    def _say(self, envelopes: list[Envelope]) -> None:
        """Answer the server's last file."""
        self._mail.say(packed(envelopes, self._carried))


def site_config(path: str, more: Mapping[str, object]):
    """The settings of the site of the file at `path`; see `Meeting.settings`.

    Raises
    ------
    ConfigError
        They are wrong, or do not go with a folder.
    """
    cfg = role_config(path, "client", more)
    check_folder_run(cfg)
    return cfg


def take_part(
    path: str,
    shared: Path,
    keys: Path,
    own: Identity,
    once: bool = False,
    again: bool = False,
) -> str:
    """Take part as the site of the file at `path`; see `FolderSite.run`.

    The server's greeting gives the client's number, and the site's name is its domain,
    where the file says nothing else.
    """
    looking = store.Looking()
    while (met := Meeting(shared, keys, own)).greeting is None:
        if once:
            return f"nothing has come yet; awaited: {met.server}"
        looking.wait()
    cfg = site_config(path, met.settings)
    use_threads(cfg)
    try:
        return FolderSite(cfg, met).run(once, again)
    except AtWork:
        return AT_WORK
