"""Leads a federation over a shared folder.

The server's journal says in which order it took the sites' files, and when it decided
that an answer was late. The course is deterministic. So a server that starts again
replays the journal: it makes the same files, to the byte, and then goes on.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.check import check_places
from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.run_settings import experiment_name, use_threads
from federatedscope_ggeur.errors import (
    ConfigError,
    GGEURError,
    MessageError,
    setting,
    without_folders,
)
from federatedscope_ggeur.federation.exchanges.base import due_exchanges
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.lock import AtWork
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting.run_files import CONFIG_FILE, LOG_FILE, logging_to
from federatedscope_ggeur.settings import NOT_SET

from . import store
from .federation import DistributedRun
from .hub import FolderHub
from .keys import Identity, PinnedKeys
from .leading import Leader
from .roles import role_config, server_data, transport_settings
from .sealed import Context, largest_file, read_greeting, sha256
from .watch import Watch, closing

logger = get_logger(__name__)

ENGINE = "folder"
AT_WORK = "another process of this side is at work, and goes on"


def check_folder_run(cfg) -> None:
    """Refuse settings that do not go with a shared folder.

    Raises
    ------
    ConfigError
        The error names them all.
    """
    due = due_exchanges(demands_of(cfg))
    wrong = [setting(part.NOT_BY_FOLDER) for part in due if part.NOT_BY_FOLDER]
    places = "save_to", "restore_from"
    wrong += [f"federate.{name}" for name in places if cfg.federate[name]]
    if wrong:
        raise ConfigError(
            f"--folder cannot go with {', '.join(wrong)} yet; take these settings out, "
            "or use another engine (a run by folder goes on from its own store)"
        )


class FolderServer:
    """Leads one run, with files in `shared`.

    Parameters
    ----------
    cfg : CfgNode
    shared : path
    keys : path
        The folder of the server's keys; its stores are there, too.
    own : Identity
    """

    def __init__(self, cfg, shared: Path, keys: Path, own: Identity):
        check_folder_run(cfg)
        self._cfg, self._keys, self._own, self._now = cfg, keys, own, 0.0
        self.folder = Path(cfg.outdir, experiment_name(cfg))
        self._shared = store.SharedFolder(shared)
        self._known = PinnedKeys(keys, own, serves=True)
        if own.name in self._known.names:
            raise ConfigError(
                f"known.txt: {own.name} is this side; the file names the sites"
            )
        for line in self._known.uncompared:
            logger.warning("words of %s: not compared yet, so it cannot join", line)
        self._store = _store_of(keys, self._shared, self._known.names, own)
        settings = transport_settings(cfg)
        self._hub = FolderHub(self._shared, self._store, own, self._known, settings)
        data, self._entries = server_data(cfg), 0
        place = self._store.folder
        federation = DistributedRun(cfg, data, ENGINE, self.folder, True, store=place)
        self._leader = Leader(
            cfg,
            federation,
            self._hub,  # type: ignore[arg-type]  # this class receives itself
            self._write_once,
            lambda: self._now,
        )
        self._leading = self._leader.leading

    def run(self, once: bool = False) -> str:
        """Lead the run to its end, or with `once` as far as the files that are there.

        Returns
        -------
        str
            A line that says what comes next.

        Raises
        ------
        GGEURError
            Too few sites joined or are left, or the folder or store cannot be used.
        """
        store.make_run_folder(self.folder)
        with (
            self._store.at_work(self.folder, waits=not once),
            logging_to(self.folder / LOG_FILE),
            closing(Watch(self.folder, "server", self._leading.status)) as watch,
        ):
            try:
                self._replay()
                self._go_on(once)
            except ConfigError:
                raise  # mended here; the sites wait
            except GGEURError as error:
                if self._leading.federation.is_begun:
                    self._leading.federation.write_unfinished()
                reason = without_folders(str(error))
                self._hub.close(f"the server ended the run: {reason}")
                raise
            finally:
                self._leading.federation.leave()
            if not self._is_over:
                watch.close("running")
        return self._line()

    def _replay(self) -> None:
        self._now = self._store.began
        self._leading.seconds_left()  # the wait for clients begins
        with quiet():
            for entry in self._store.journal():
                self._entries += 1
                self._apply(entry)
        if not self._entries:
            store.refuse_other_results(self.folder)
        if not self._leading.federation.is_begun:
            check_places(self._cfg)  # later, round 0 knows what this run has written
        config = self.folder / CONFIG_FILE
        if not config.exists():
            write_atomically(config, self._cfg.dump())
        if self._entries:
            logger.info("going on from %d entries of the journal", self._entries)
        self._hub.check_store()

    def _go_on(self, once: bool) -> None:
        looking = store.Looking()
        while not self._is_over:
            self._now = max(self._now, time.time())
            self._hub.known = PinnedKeys(self._keys, self._own, serves=True)
            if (name := self._hub.new_site()) is not None:
                self._note(number_of=name)
            elif (name := self._hub.ungreeted()) is not None:
                self._note(greet=name)
            elif (name := self._hub.put_out()) is not None:
                self._note(out=name)
            elif (file := self._hub.find()) is not None:
                name, number, data = file
                self._hub.keep(name, data)
                self._note(site=name, number=number, sha256=sha256(data))
            elif self._leading.seconds_left() == 0:
                self._note(late=True)
            elif once:
                return
            else:
                looking.wait(self._leading.seconds_left())
                continue
            looking.reset()

    def _note(self, **what) -> None:
        """Write what happens into the journal; then let it happen."""
        self._entries += 1
        entry = {"at": self._now, **what}
        self._store.note(self._entries, entry)
        self._apply(entry)

    def _apply(self, entry) -> None:
        self._now = entry["at"]
        if "late" in entry:
            self._leading.take(None)
        elif "number_of" in entry:
            self._hub.number(entry["number_of"])
        elif "greet" in entry:
            self._hub.greet(entry["greet"])
        elif "out" in entry:
            number = self._hub.leave_out(entry["out"])
            reason = f"{entry['out']} was put out by a line of known.txt"
            self._leading.put_out(number, reason)
        else:
            site, number = entry["site"], entry["number"]
            for event in self._hub.take(site, number, entry["sha256"]):
                self._leading.take(event)

    def _write_once(self, federation: DistributedRun) -> str:
        if self._store.is_written:
            federation.leave()
            return ""
        table = federation.write("finished")
        self._store.note_written()
        return table

    @property
    def _is_over(self) -> bool:
        return self._leader.table is not None

    def _line(self) -> str:
        if self._is_over:
            return f"the run is over; the results are in {self.folder}"
        leading = self._leading
        members, waiting = leading.federation.membership, leading.driver.waiting
        if not members.started:
            what, missing = "the sites join", members.missing
        else:
            assert waiting is not None, "a run that goes on waits for somebody"
            name, number, missing = waiting
            what = f"{name.replace('_', ' ')}, round {number}"
        return f"{what}; awaited: {', '.join(self._hub.names(missing))}"


@contextmanager
def quiet() -> Iterator[None]:
    """A context in which nothing is logged: it was, when it happened."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _store_of(
    keys: Path, shared: store.SharedFolder, names: Sequence[str], own: Identity
) -> store.Store:
    """The store of the run in the shared folder; a new one if the folder is empty.

    The folder's greetings name the run: a stick may be in another place than before.

    Raises
    ------
    ConfigError
        The folder holds a run whose store is missing.
    """
    for name in names:
        first = shared.name(store.TO, name, 1)
        try:
            data = shared.read(first, largest_file(0))
            wanted = Context(own.name, "", own.name, name, 1)
            run = read_greeting(data, wanted, own.key, first).run if data else ""
        except MessageError:
            run = ""
        if run and (keys / store.run_folder(run) / store.RUN).exists():
            return store.Store(keys / store.run_folder(run))
    if (known := store.Store.of_folder(keys, shared.root)) is not None:
        return known
    for name in names:
        shared.refuse_later(
            shared.name(store.TO, name, 1), largest_file(0), own.key, keys
        )
    run = secrets.token_hex(16)
    return store.Store.make(keys / store.run_folder(run), run, shared.root)


def lead(path: str, shared: Path, keys: Path, own: Identity, once: bool = False) -> str:
    """Lead the federation of the file at `path`; see `FolderServer.run`."""
    cfg = role_config(path, "server")
    cfg.defrost()
    cfg.ggeur.checkpoint_every = NOT_SET  # a run goes on from its store
    cfg.freeze()
    use_threads(cfg)
    try:
        return FolderServer(cfg, shared, keys, own).run(once)
    except AtWork:
        return AT_WORK
