"""Leads a federation over the transport's streams, or takes part in one, without FS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.keys import DeadlineKeys, DistributedKeys, read
from federatedscope_ggeur.cfg_ggeur.load import idle_notes
from federatedscope_ggeur.cfg_ggeur.run_settings import experiment_name, use_threads
from federatedscope_ggeur.errors import ConfigError, GGEURError, without_folders
from federatedscope_ggeur.federation.course.client_handler import ClientStore
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.wire.schema import PLAIN
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.lock import AtWork, locked
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import Results, new_run_folder
from federatedscope_ggeur.reporting.run_files import (
    CONFIG_FILE,
    LOG_FILE,
    PRIVATE,
    logging_to,
)

from ..run import check_client_place, checkpoint_place
from .federation import DistributedRun
from .keys import private_folder, unusable
from .leading import CONVERGED, FINISH, Leader, failed
from .roles import server_data, transport_settings
from .site_folder import Site, SiteMemory, model_line, question
from .transport import Envelope, Hub
from .transport.link import Rejoining, SiteLink
from .watch import Watch, closing

logger = get_logger(__name__)

ENGINE = "streams"


def lead(cfg) -> str:
    """Lead the federation of the server's settings to its end.

    Returns
    -------
    str
        The table of results.

    Raises
    ------
    GGEURError
        The port or a file cannot be used, or too few sites joined or are left.
    """
    check_engine(cfg)
    host, port = cfg.distribute.server_host, int(cfg.distribute.server_port)
    use_threads(cfg)
    data, proven = server_data(cfg), bool(read(cfg.ggeur, DistributedKeys).join_secret)
    settings, clients = transport_settings(cfg), int(cfg.federate.client_num)
    hub = Hub(host, port, clients, settings, PLAIN)

    with run_files(cfg, "server") as (folder, watch):
        federation = DistributedRun(cfg, data, ENGINE, folder, proven)
        leader = Leader(cfg, federation, hub)
        watch.describe = leader.leading.status
        logger.info("listening on %s:%d", host, hub.port)
        return leader.lead()


def take_part(cfg, new_run: bool = False) -> str:
    """Take part as the site of these settings, until the run is over.

    What the site was asked is kept until a run is finished, so that a new process
    answers no more than the first one; `new_run` says that this is another run.

    Returns
    -------
    str
        A line that says where the model is. If the operator of the server ended the
        run, the line says so, and the model is the last one that has arrived.

    Raises
    ------
    GGEURError
        The server refused this site, ended the run with an error, or is silent. Or it
        could not be reached again in time, or was lost too often. Or the data or a file
        cannot be used.
    """
    check_engine(cfg)
    use_threads(cfg)
    site = _ConnectedSite(cfg)
    with run_files(cfg, f"client {site.number}") as (folder, watch):
        watch.describe = lambda: {"doing": site.doing}
        return site.run(folder, watch, new_run)


def check_engine(cfg) -> None:
    """Refuse what only FederatedScope itself does.

    Raises
    ------
    ConfigError
    """
    rule = str(cfg.get("aggregator", {}).get("robust_rule", "fedavg")).lower()
    if rule != "fedavg":
        raise ConfigError(
            f"aggregator.robust_rule: {rule} is FederatedScope's own, which `ggeur "
            "serve` and `join` do not use; start its main.py, or take the setting out"
        )


class _ConnectedSite:
    """One site of a federation over streams."""

    def __init__(self, cfg):
        self._cfg, self._site = cfg, Site(cfg)
        self.number, self.doing = self._site.number, "waiting for the server"
        check_client_place(cfg, self.number)
        address = f"{cfg.distribute.server_host}:{cfg.distribute.server_port}"
        patience = read(cfg.ggeur, DeadlineKeys).silence
        self._link = SiteLink(address, transport_settings(cfg), patience)
        self._join = self._site.join()

    def run(self, folder: Path, watch: Watch, new_run: bool) -> str:
        """Answer the server until the run is over; where the model is.

        Raises
        ------
        ConfigError
            Another process of this client is at work.
        """
        with self._remembered(new_run) as self._memory:
            return self._run(folder, watch, new_run)

    def _run(self, folder: Path, watch: Watch, new_run: bool) -> str:
        settings = self._site.settings
        place = checkpoint_place(folder, settings)
        handler = self._site.handler(place, bool(settings.save_to))
        states, before = handler.client.states, self._memory.run["states_at"]
        if settings.restore_from or before:
            states = ClientStore(settings.restore_from or before, self.number).load()
        if place:
            ClientStore(place, self.number, bool(settings.save_to)).save(states)
        asked = self._memory.asked
        if asked:
            logger.info(
                "client %d: it has answered %d questions of a run that did not end, "
                "and answers no others of their kinds; if the federation begins "
                "another run: ggeur join ... --new-run",
                self.number,
                len(asked),
            )
        self._memory.refused = handler.resume(asked, states)
        self._client = handler.client
        self._leaves = self._site.leaves(folder, ENGINE, handler)
        self._left: Results | None = None
        rejoining = Rejoining()
        try:
            self._link.join(self.number, self._join)
            if new_run:  # not before: the server may refuse this process
                self._memory.forget()
            self._memory.save(states_at=place)
            rejoining.until(
                self._step, lambda: self._link.join(self.number, self._join)
            )
        except BaseException as error:
            if not (line := self._leaves.ended_by(error, watch)):
                raise
            return line
        finally:
            self._link.close()
        assert self._left is not None, "the run is over"
        return model_line(self.number, folder, self._left)

    @contextmanager
    def _remembered(self, new_run: bool) -> Iterator[SiteMemory]:
        """What the site was asked in a run that it has not finished."""
        place = Path(self._cfg.outdir, experiment_name(self._cfg), PRIVATE)
        own = place / f"asked_{self.number}"
        private_folder(place)
        private_folder(own)
        lock = own / "lock"
        try:
            with locked(lock, "what this site was asked", unusable, waits=False):
                yield SiteMemory(own, reads=not new_run)
        except AtWork as error:
            raise ConfigError(
                f"another process of client {self.number} is at work, and goes on; "
                f"end it first (it holds the lock '{lock}')"
            ) from error

    def _step(self) -> bool:
        """Answer the next message; returns whether it was the last one."""
        self.doing = "waiting for the server"
        envelope = self._link.receive()
        if envelope.kind == FINISH:
            self._left = self._leaves.end(envelope.parts)
            self._memory.forget()
            return True
        if envelope.kind != CONVERGED:
            self._answer(envelope)
        return False

    def _answer(self, envelope: Envelope) -> None:
        kind, state = question(envelope), envelope.state
        self.doing = f"answering: {kind.name.replace('_', ' ')} (round {state})"
        if kind is TRAIN and self._client.recipe is None:
            logger.warning("ignored a request that was sent to an earlier connection")
            return
        try:
            with self._memory.keep(kind, envelope.parts, even_last=False):
                answer = self._leaves.reply(envelope, kind)
        except GGEURError as error:
            self._link.send(failed(without_folders(str(error)), state))
            raise
        if answer:
            self._link.send(answer)


@contextmanager
def run_files(cfg, role: str) -> Iterator[tuple[Path, Watch]]:
    """A new folder for this side of the run, with its log and its status file."""
    folder = new_run_folder(cfg.outdir, experiment_name(cfg)).absolute()
    write_atomically(folder / CONFIG_FILE, cfg.dump())
    describe: Callable[[], dict] = dict
    with (
        logging_to(folder / LOG_FILE),
        closing(Watch(folder, role, describe)) as watch,
    ):
        for note in idle_notes(cfg):
            logger.info("note: %s", note)
        try:
            yield folder, watch
        except GGEURError as error:
            logger.error("failed: %s", error, extra={"file_only": True})
            raise
