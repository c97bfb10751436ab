"""What the server worker knows of the federation: what is over, and the files."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.load import to_plain
from federatedscope_ggeur.cfg_ggeur.method_settings import method_notes
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    run_settings,
    server_evaluates,
)
from federatedscope_ggeur.engines.fs.data import ServerSplits
from federatedscope_ggeur.engines.fs.joining import Joining
from federatedscope_ggeur.federation import Server
from federatedscope_ggeur.federation.course.checkpoint import (
    CheckpointWriter,
    restore,
)
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.federation.course.history import (
    NO_HEAD,
    Setting,
    has_scores,
    record_lines,
)
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.reporting import (
    ClientInfo,
    HeadRecord,
    Round0,
    RoundRecord,
    results_table,
    write_run,
)

logger = logging.getLogger(__name__)


class Federation(Joining):
    """The clients that joined, the coordinator that leads them, and what they leave.

    Parameters
    ----------
    cfg : config of FS
    data : ServerSplits or None
        None where the server holds no data: what it must know comes with the clients.
    dismiss : callable (client number, reason)

    Attributes
    ----------
    round0 : Round0 or None
    rounds : list of RoundRecord
    calibrated : HeadRecord or None
    """

    def __init__(self, cfg, data: ServerSplits | None, dismiss: Callable):
        super().__init__(cfg, data)
        self._dismiss = dismiss
        self.round0: Round0 | None = None
        self.rounds: list[RoundRecord] = []
        self.calibrated: HeadRecord | None = None
        self._writer: CheckpointWriter | None = None

    # the run

    def start(self, method: Method | None = None) -> None:
        """Everyone is there: set up the server role, or restore it.

        Parameters
        ----------
        method : Method, optional
            In place of ``ggeur.base_method``.
        """
        handshake, cfg = self._handshake, self._cfg
        client_domains = {**self._expected, **self.joined}
        settings = run_settings(
            cfg, len(handshake.class_names), handshake.dim, len(client_domains)
        )
        role = (
            settings.server
            if method is None
            else replace(settings.server, method=method)
        )
        tests = self._data.tests if self._data is not None else {}
        self.coordinator = Coordinator(
            Server(client_domains, role), settings.plan, tests, self._dismiss
        )
        for number in client_domains.keys() - self.joined.keys():
            self.coordinator.leave(number, "has not joined again")
        progress = None
        if settings.restore_from:
            progress = restore(settings.restore_from, self.coordinator, handshake)
            if progress is not None:
                self.round0, self.rounds = progress.round0, list(progress.rounds)
        if settings.save_to:
            self._writer = CheckpointWriter(settings.save_to, handshake, progress)
        self._params = self.coordinator.server.params
        for note in method_notes(cfg):
            logger.info(note)
        atexit.register(self.write_unfinished)

    def note_round0(self, round0: Round0) -> None:
        """Round 0 is over."""
        self.round0 = round0
        self._params = self.coordinator.server.params
        _log(round0)
        self._checkpoint()

    def note_round(self, record: RoundRecord) -> None:
        """A round is over."""
        self.rounds.append(record)
        self._params = self.coordinator.server.params
        self._checkpoint()

    def note_calibrated(self, record: HeadRecord) -> None:
        """The head is calibrated; a checkpoint is of before that."""
        self.calibrated = record
        self._params = self.coordinator.server.params
        _log(record)

    @property
    def last_scored(self) -> RoundRecord | HeadRecord:
        """The record of the last evaluation."""
        if self.calibrated is not None:
            return self.calibrated
        return self.rounds[-1] if self.rounds else self.round0.closed_form

    def _checkpoint(self) -> None:
        if self._writer is not None:
            self._writer.write(self.coordinator, self.round0, self.rounds)

    # files

    @property
    def _folder(self) -> Path:
        return Path(self._cfg.outdir)

    def write(self, status: str) -> str:
        """Write our files of the rounds that are over into FS's run folder.

        Returns
        -------
        str
            The results as a table, for a person.
        """
        atexit.unregister(self.write_unfinished)
        setting = self._setting()
        results = setting.results(status, self.round0, self.rounds, self.calibrated)
        write_run(self._folder, results)
        server = self.coordinator.server
        if server.settings.method.federated:
            model = setting.head_bytes(server.model, self._params)
            write_atomically(self._folder / "head.safetensors", model)
        else:
            logger.info(NO_HEAD)
        return results_table(results)

    def write_unfinished(self) -> None:
        """At the end of the process: what an unfinished run leaves."""
        if has_scores(self.round0, self.rounds) and self._folder.is_dir():
            # Python notes there what ended the program.
            stopped = getattr(sys, "last_type", None) is KeyboardInterrupt
            self.write("interrupted" if stopped else "failed")

    def _setting(self) -> Setting:
        cfg, data, client_domains = (
            self._cfg,
            self._data,
            self.coordinator.server.client_domains,
        )
        unseen = data.unseen if data is not None else []
        config, domains = (
            plain_config(cfg),
            [*dict.fromkeys(client_domains.values()), *unseen],
        )
        if server_evaluates(cfg):
            domains = list(data.tests)
        if data is not None:
            # Where the data are in one place, FS's own says 1.
            config["federate"]["client_num"] = data.client_num
        return Setting(
            engine=f"federatedscope {cfg.federate.mode}",
            config=config,
            seed=cfg.seed,
            domains=domains,
            unseen_domains=unseen,
            class_names=list(self._handshake.class_names),
            encoder=self._handshake.encoder,
            clients=[
                ClientInfo(k, domain, None, None)
                for k, domain in client_domains.items()
            ],
        )


def _log(record: Round0 | HeadRecord) -> None:
    for line in record_lines(record):
        logger.info("%s", line)


def plain_config(cfg) -> dict:
    """FS's config as nested plain dicts, without what FS keeps beside the settings."""
    copy = cfg.clone()
    copy.defrost()
    copy.clear_aux_info()
    return to_plain(copy)
