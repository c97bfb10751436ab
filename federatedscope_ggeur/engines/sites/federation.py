"""A distributed run on its server: members, course, and result files."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from federatedscope_ggeur import reporting
from federatedscope_ggeur.cfg_ggeur.check import check_places, given_handshake
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    RunSettings,
    quorum,
    server_evaluates,
)
from federatedscope_ggeur.cfg_ggeur.start_notes import (
    privacy_of,
    start_notes,
    withheld_line,
)
from federatedscope_ggeur.cfg_ggeur.transform import preparation, prepared
from federatedscope_ggeur.cfg_ggeur.yaml_file import plain_config
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.course.checkpoint import (
    checkpoint_client_domains,
    warn_of_private,
)
from federatedscope_ggeur.federation.course.history import History
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.exchanges import Requests
from federatedscope_ggeur.federation.exchanges.base import writing_files
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EvaluationClient,
)
from federatedscope_ggeur.federation.settings import Prepared
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting.results import Status

from .. import run
from ..workers import handshake_of, known_of_rows, server_side, settings_for
from .roles import ServerData, transport_settings
from .watch import round_line

logger = get_logger(__name__)


class DistributedRun:
    """A distributed run, as its server leads it.

    Parameters
    ----------
    cfg : config
    data : ServerData or None
        The server's data. None if it has none: then clients tell the necessary facts.
    engine : str
        The name of the engine in results.
    folder : path
        The run's folder.
    proven : bool
        See `Membership`.
    go_on : callable (path) -> str
        Returns the command that continues from a checkpoint.
    store : path, optional
        See `Coordinator`.

    Attributes
    ----------
    membership : Membership
    coordinator : Coordinator
        The coordinator; it exists from `start` on, like `history`.
    history : History
    is_begun : bool
        Whether `start` has finished.
    dismiss : callable (client number, reason)
        Ends a client's connection; `Leading` sets it.
    """

    dismiss: Callable[[int, str], None]

    def __init__(
        self,
        cfg,
        data: ServerData | None,
        engine: str,
        folder: str | Path,
        proven: bool,
        go_on: Callable[[Path], str] = run.command_to_go_on,
        store: Path | None = None,
    ):
        self._cfg, self._data = cfg, data
        self._engine, self._folder, self._go_on = engine, Path(folder), go_on
        self._store = store
        self.is_begun = False
        settings, path = agreed_settings(cfg), cfg.federate.restore_from
        if store is None:  # else the run may go on from there
            check_places(cfg)
        handshake = None
        if data is not None:
            handshake = handshake_of(data.whole, settings, data.prepared)
        self.membership = Membership(
            cfg.federate.client_num,
            quorum(cfg),
            settings,
            handshake,
            checkpoint_client_domains(path) if path else None,
            given_handshake(cfg.ggeur),
            proven,
        )
        for number in transport_settings(cfg).security.withdrawn():
            self.membership.put_out(number)

    def start(self, method: Method | None = None) -> None:
        """Set up or restore the server role, once all clients have joined.

        Parameters
        ----------
        method : Method, optional
            The method to use in place of ``ggeur.base_method``.
        """
        cfg, members, data = self._cfg, self.membership, self._data
        handshake, domains = members.handshake, members.client_domains
        assert handshake is not None, "all clients have joined"
        ready = self._prepared(handshake)
        settings = settings_for(cfg, handshake, len(domains), ready)
        if method is not None:
            task = replace(settings.role.task, method=method)
            settings = replace(settings, role=replace(settings.role, task=task))
        rows = data.rows if data is not None else {}
        self.coordinator, progress = server_side(
            domains, settings, handshake, rows, members, self.dismiss
        )
        self.coordinator.folder = self._folder if self._folder.is_dir() else None
        self.coordinator.store = self._store
        kept = run.server_checkpoints(self._folder, settings, handshake, progress)
        notes = self._notes(settings)
        self.history = History(self.coordinator, self._begun(notes), kept, progress)
        if data is not None and data.roles is not None:
            roles = data.roles  # the clients', which run in this process
            self.history.own_params = lambda k, scored: EvaluationClient(
                roles[k], {}
            ).eval_params(scored)
            self.history.personal_params = lambda k: roles[k].personal
        self._leave_sigterm = run.take_sigterm()
        atexit.register(self.write_unfinished)
        self.is_begun = True

    def _prepared(self, handshake: Handshake) -> Prepared | None:
        """What the server has prepared, after comparing it with the clients'.

        Raises
        ------
        ConfigError
            It differs from the clients'.
        """
        if self._data is not None:
            return self._data.prepared
        ours = prepared(
            self._cfg, handshake.class_names, handshake.dim, encoder=handshake.encoder
        )
        how = preparation(self._cfg)
        if ours is not None and how is not None and ours.key != handshake.text:
            raise ConfigError(how.differs)
        return ours

    def note(self, record: reporting.Round0 | reporting.RoundRecord) -> None:
        """Add the record of round 0 or of a round to the history, and log a round."""
        self.history.note(record)
        self._tell(record)

    def end(
        self, record: reporting.RoundRecord | reporting.TemperatureScaling | None
    ) -> None:
        """End the run; `record` describes the step after the last round, if any."""
        self.history.end(record)
        if isinstance(record, reporting.RoundRecord):
            self._tell(record)

    def _tell(self, record: reporting.Round0 | reporting.RoundRecord) -> None:
        if isinstance(record, reporting.RoundRecord) and record.method is None:
            logger.info("%s", round_line(self.history.rounds, self.history.total))
        if isinstance(record, reporting.Round0) or record.method is not None:
            for line in reporting.record_lines(record):
                logger.info("%s", line)

    def write(self, status: Status) -> str:
        """Write this package's result files into the run's folder.

        Returns
        -------
        str
            The table of results.
        """
        atexit.unregister(self.write_unfinished)
        self._leave_sigterm()
        self.history.flush()
        results, head = self.history.results(status), self.history.head_bytes()
        with writing_files(self.coordinator.server.settings, self._folder):
            reporting.write_run(self._folder, results, head, self.history.own_bytes())
        logger.info("results.json, the head and the curve are in %s", self._folder)
        warn_of_private(self._folder)
        return reporting.results_table(results)

    def write_unfinished(self, stopped: bool = False) -> None:
        """Write the files of an unfinished run, at the end of the process.

        `stopped` says that a person ended the run.
        """
        atexit.unregister(self.write_unfinished)
        # Python notes there what ended the program.
        stopped |= getattr(sys, "last_type", None) is KeyboardInterrupt
        status: Status = "interrupted" if stopped else "failed"
        try:
            if self.history.last_scored and self._folder.is_dir():
                self.write(status)
            self.history.flush()
        finally:
            kept = self.history.checkpoints
            if kept is not None and kept.is_written:
                logger.warning("%s: %s", run.TO_GO_ON[status], self._go_on(kept.path))

    def leave(self) -> None:
        """Leave the run as it is: another process goes on with it."""
        atexit.unregister(self.write_unfinished)
        if self.is_begun:
            self._leave_sigterm()

    def _notes(self, settings: RunSettings) -> list[str]:
        """The notes at the start of the run, which are logged already."""
        cfg, server = self._cfg, self.coordinator.server
        held = self._data.held if self._data is not None else None
        if held is not None:
            held = held.among(server.participants)
            if line := withheld_line(settings, held):
                logger.info(line)
        domains = {k: server.client_domains[k] for k in server.participants}
        notes = start_notes(cfg, settings, domains, held)
        for note in notes:
            logger.info("note: %s", note)
        return notes

    def _begun(self, notes: list[str]) -> reporting.Results:
        cfg, data, clients = self._cfg, self._data, self.membership.client_domains
        handshake = self.membership.handshake
        assert handshake is not None, "all clients have joined"
        unseen = data.unseen if data is not None else []
        domains = [*dict.fromkeys(clients.values()), *unseen]
        config = plain_config(cfg)
        if data is not None and server_evaluates(cfg):
            domains = data.domains
        if data is not None:
            # Where the data are in one place, FS's own says 1.
            config["federate"]["client_num"] = data.client_num
        return reporting.Results.begun(
            notes=notes,
            privacy=privacy_of(cfg, self._engine),
            pooled=None if data is None else run.pooled_rows(data.whole),
            engine=self._engine,
            config=config,
            seed=cfg.seed,
            domains=domains,
            unseen_domains=unseen,
            **known_of_rows(cfg, handshake if data is None else data.whole),
            clients=[
                reporting.ClientInfo(k, domain, None, None)
                for k, domain in clients.items()
            ],
        )


def course(federation: DistributedRun) -> Requests[None]:
    """The course of a started run from its present state to its end."""
    history = federation.history
    with closing(history.course(federation.note, federation.end)) as parts:
        for part in parts:
            yield from part
