"""What the server worker leads: the members, the roles' course, the files."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.check import given_handshake
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.cfg_ggeur.privacy_record import privacy_of
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    RunSettings,
    quorum,
    run_settings,
    server_evaluates,
)
from federatedscope_ggeur.cfg_ggeur.start_notes import (
    reach_line,
    start_notes,
    withheld_line,
)
from federatedscope_ggeur.cfg_ggeur.transform import row_preparation
from federatedscope_ggeur.engines.fs.checkpoints import (
    command_to_go_on,
    server_checkpoints,
    take_sigterm,
)
from federatedscope_ggeur.engines.fs.config import plain_config
from federatedscope_ggeur.engines.fs.data import ServerSplits
from federatedscope_ggeur.engines.text import class_texts, text_key
from federatedscope_ggeur.engines.watch import round_line
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import Server
from federatedscope_ggeur.federation.course.checkpoint import (
    check_place,
    checkpoint_client_domains,
    restore,
)
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.federation.course.history import History
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.exchanges.book.exchange import note_run
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EvaluationClient,
)
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models.text import ClassTexts
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import (
    ClientInfo,
    Results,
    Round0,
    RoundRecord,
    TemperatureScaling,
    Tracking,
    record_lines,
    results_table,
    write_run,
)

logger = get_logger(__name__)


class Federation:
    """The federation of one server worker.

    Parameters
    ----------
    cfg : config of FS
    data : ServerSplits or None
        None where the server holds no data: what it must know comes with the clients.
    dismiss : callable (client number, reason)

    Attributes
    ----------
    membership : Membership
    coordinator : Coordinator
        From `start` on, like `history`.
    history : History
    """

    def __init__(self, cfg, data: ServerSplits | None, dismiss: Callable):
        self._cfg, self._data, self._dismiss = cfg, data, dismiss
        settings, path = agreed_settings(cfg), cfg.federate.restore_from
        check_place(cfg.federate.save_to, path)
        handshake = None
        if data is not None:
            said = text_key(data.text)
            handshake = Handshake(
                data.class_names, data.dim, data.encoder, settings, said
            )
        self.membership = Membership(
            cfg.federate.client_num,
            quorum(cfg),
            settings,
            handshake,
            checkpoint_client_domains(path) if path else None,
            given_handshake(cfg.ggeur),
            proven=cfg.federate.mode == "standalone" or bool(cfg.ggeur.join_secret),
        )

    def start(self, method: Method | None = None) -> None:
        """Everyone is there: set up the server role, or restore it.

        Parameters
        ----------
        method : Method, optional
            In place of ``ggeur.base_method``.
        """
        cfg, members = self._cfg, self.membership
        handshake = members.handshake
        names, clients = handshake.class_names, len(members.client_domains)
        settings = run_settings(
            cfg,
            len(names),
            handshake.dim,
            clients,
            self._text(handshake),
            names,
            handshake.encoder,
        )
        role = settings.role
        if method is not None:
            role = replace(role, task=replace(role.task, method=method))
        rows = self._data.rows if self._data is not None else {}
        server = Server(members.client_domains, role)
        self.coordinator = Coordinator(
            server, settings.plan, rows, members, self._dismiss
        )
        path, progress = settings.restore_from, None
        if path:
            progress = restore(path, self.coordinator, handshake)
        kept = server_checkpoints(cfg, settings, handshake, progress)
        notes = self._notes(settings)
        self.history = History(self.coordinator, self._begun(notes), kept, progress)
        if self._data is not None and self._data.roles is not None:
            roles = self._data.roles  # the clients', which run in this process
            self.history.own_params = lambda k, scored: EvaluationClient(
                roles[k], {}
            ).eval_params(scored)
            self.history.personal_params = lambda k: roles[k].personal
        # FS has begun the W&B run, and tells of its own lines.
        folder = Path(cfg.outdir)
        self._tracking = Tracking(settings.tracking, folder, begins=False)
        self._leave_sigterm = take_sigterm()
        atexit.register(self.write_unfinished)

    def _text(self, handshake: Handshake) -> ClassTexts | None:
        """The text features that the clients have, too.

        Raises
        ------
        ConfigError
            A server that holds no data finds others.
        """
        if self._data is not None:
            return self._data.text
        found = class_texts(self._cfg, handshake.class_names, handshake.dim)
        if text_key(found) != handshake.text:
            raise ConfigError(
                "ggeur.text: the server's text features are others than the clients'; "
                "give it their text.npz (data.root), or the same ggeur.encoder and "
                "ggeur.text.templates"
            )
        return found

    def note(self, record: Round0 | RoundRecord) -> None:
        """Something is over: into the history, and of a round the log has its own."""
        self.history.note(record)
        self._tell(record)

    def end(self, record: RoundRecord | TemperatureScaling | None) -> None:
        """All is over; `record` is of what came after the last round."""
        self.history.end(record)
        if isinstance(record, RoundRecord):
            self._tell(record)

    def _tell(self, record: Round0 | RoundRecord) -> None:
        self._tracking.note(record)
        if isinstance(record, RoundRecord) and record.method is None:
            logger.info("%s", round_line(self.history.rounds, self.history.total))
        if isinstance(record, Round0) or record.method is not None:
            for line in record_lines(record):
                logger.info("%s", line)

    def write(self, status: str) -> str:
        """Write our files of the rounds that are over into FS's run folder.

        Returns
        -------
        str
            The results as a table, for a person.
        """
        atexit.unregister(self.write_unfinished)
        self._leave_sigterm()
        self._tracking.close(failed=status != "finished")
        self.history.flush()
        results, head = self.history.results(status), self.history.head_bytes()
        note_run(self.coordinator.server.settings, self._cfg.outdir)
        write_run(self._cfg.outdir, results, head, self.history.own_bytes())
        logger.info("results.json, the head and the curve are in %s", self._cfg.outdir)
        return results_table(results)

    def write_unfinished(self) -> None:
        """At the end of the process: what an unfinished run leaves."""
        if self.history.last_scored and Path(self._cfg.outdir).is_dir():
            # Python notes there what ended the program.
            stopped = getattr(sys, "last_type", None) is KeyboardInterrupt
            self.write("interrupted" if stopped else "failed")
        self.history.flush()
        kept = self.history.checkpoints
        if kept is not None and kept.path.exists():
            logger.warning("to go on: %s", command_to_go_on(kept.path))

    def _notes(self, settings: RunSettings) -> list[str]:
        """What there is to say at the start; the log has it by now."""
        cfg, server = self._cfg, self.coordinator.server
        held = self._data.held if self._data is not None else None
        if held is not None:
            held = held.among(server.participants)
            lines = withheld_line(settings, held), reach_line(settings, held)
            for line in filter(None, lines):
                logger.info(line)
        domains = {k: server.client_domains[k] for k in server.participants}
        notes = start_notes(cfg, settings, domains, held)
        for note in notes:
            logger.info("note: %s", note)
        return notes

    def _begun(self, notes: list[str]) -> Results:
        cfg, data, clients = self._cfg, self._data, self.membership.client_domains
        unseen = data.unseen if data is not None else []
        domains = [*dict.fromkeys(clients.values()), *unseen]
        config = plain_config(cfg)
        if server_evaluates(cfg):
            domains = data.domains
        if data is not None:
            # Where the data are in one place, FS's own says 1.
            config["federate"]["client_num"] = data.client_num
        return Results.begun(
            notes=notes,
            privacy=privacy_of(cfg),
            pooled=None if data is None else data.pooled,
            engine=f"federatedscope {cfg.federate.mode}",
            config=config,
            seed=cfg.seed,
            domains=domains,
            unseen_domains=unseen,
            class_names=list(self.membership.handshake.class_names),
            encoder=self.membership.handshake.encoder,
            prepare=row_preparation(cfg),
            clients=[
                ClientInfo(k, domain, None, None) for k, domain in clients.items()
            ],
        )
