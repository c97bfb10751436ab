"""What the server worker knows of the federation: who joined, what is over, files."""

from __future__ import annotations

import atexit
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from federatedscope_ggeur.engines.checkpoint import (
    CheckpointWriter,
    checkpoint_roster,
    restore,
)
from federatedscope_ggeur.engines.config import to_plain
from federatedscope_ggeur.engines.coordinator import Coordinator
from federatedscope_ggeur.engines.fs.data import ServerSplits
from federatedscope_ggeur.engines.method_rules import method_notes
from federatedscope_ggeur.engines.report import (
    NO_HEAD,
    Setting,
    head_line,
    round0_line,
)
from federatedscope_ggeur.engines.settings import (
    agreed_settings,
    run_settings,
    server_evaluates,
)
from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation import Server
from federatedscope_ggeur.federation.join import Agreement, Join
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.reporting import (
    ClientInfo,
    HeadRecord,
    Round0,
    RoundRecord,
    results_table,
    write_atomically,
    write_run,
)

logger = logging.getLogger(__name__)


class Federation:
    """The clients that joined, the coordinator that leads them, and what they leave.

    Parameters
    ----------
    cfg : config of FS
    data : ServerSplits or None
        None where the server holds no data: what it must know comes with the clients.
    dismiss : callable (client number, reason)

    Attributes
    ----------
    joined : dict from client number to domain
    gone : dict from client number to the reason why its connection is over
    coordinator : Coordinator or None
        None until `start`.
    round0 : Round0 or None
    rounds : list of RoundRecord
    calibrated : HeadRecord or None
    """

    def __init__(self, cfg, data: ServerSplits | None, dismiss: Callable):
        self._cfg, self._data, self._dismiss = cfg, data, dismiss
        self.joined: dict[int, str] = {}
        self.gone: dict[int, str] = {}
        self.coordinator: Coordinator | None = None
        self.round0: Round0 | None = None
        self.rounds: list[RoundRecord] = []
        self.calibrated: HeadRecord | None = None
        self._settings = agreed_settings(cfg)
        self._agreement: Agreement | None = None
        if data is not None:
            self._agreement = Agreement(
                data.class_names, data.dim, data.encoder, self._settings
            )
        self._agreed_with = "the server"
        path = cfg.federate.restore_from
        self._expected = checkpoint_roster(path) if path else {}
        self._writer: CheckpointWriter | None = None
        self._closed = False
        self._until = 0.0

    # joining

    @property
    def started(self) -> bool:
        return self.coordinator is not None

    @property
    def complete(self) -> bool:
        """Whether everyone is there, or nobody is waited for any longer."""
        wanted = self._expected or range(1, self._cfg.federate.client_num + 1)
        return self._closed or all(number in self.joined for number in wanted)

    @property
    def here(self) -> list[int]:
        """The clients that are connected, late ones included."""
        return [number for number in sorted(self.joined) if number not in self.gone]

    def admit(self, join: Join) -> None:
        """Take a client in.

        Raises
        ------
        MessageError
            It does not fit the others, or the run began without it; the field says
            where.
        """
        number, sender = join.client, f"client {join.client}"
        roster = self.coordinator.server.roster if self.started else self._expected
        if roster:
            _check_known(join, roster, sender)
        elif number > self._cfg.federate.client_num:
            raise MessageError(
                f"{number}, but federate.client_num is {self._cfg.federate.client_num}",
                field="client",
                sender=sender,
            )
        self._check_agreement(join, sender)
        self.joined[number] = join.domain
        self.gone.pop(number, None)
        if self.started:
            self.coordinator.come_back(number)

    def _check_agreement(self, join: Join, sender: str) -> None:
        # Where the server holds no data, the first client says what they are.
        agreement = self._agreement or replace(join.agreement, settings=self._settings)
        difference = agreement.difference(join.agreement)
        if difference:
            raise MessageError(
                f"{difference} (at {self._agreed_with}); all sides must have it alike",
                field="agreement",
                sender=sender,
            )
        if self._agreement is None:
            self._agreement, self._agreed_with = agreement, sender

    def lose(self, number: int, reason: str) -> None:
        """A connection is gone: a client's, or that of one which was not admitted."""
        if not self.started:
            self.joined.pop(number, None)
            if not self.joined and self._data is None:
                self._agreement, self._agreed_with = None, "the server"
        elif number in self.joined:
            self.gone[number] = reason
            self.coordinator.leave(number, reason)

    def heard_from(self, number: int) -> None:
        """A late answer: the client is there after all, and free again."""
        if self.started and number in self.coordinator.absent:
            logger.info("client %d is back", number)
            self.coordinator.come_back(number)

    def begin_waiting(self) -> None:
        self._until = time.monotonic() + self._cfg.ggeur.deadline.join

    def seconds_to_join(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def close_joining(self) -> None:
        """The deadline for joining is over.

        Raises
        ------
        GGEURError
            Fewer clients than ``ggeur.quorum`` are there; names the missing.
        """
        self._closed = True
        wanted = list(self._expected or range(1, self._cfg.federate.client_num + 1))
        missing = [number for number in wanted if number not in self.joined]
        quorum = int(self._cfg.ggeur.quorum)
        quorum = len(wanted) if quorum == -1 else quorum
        logger.warning(
            "clients %s have not joined within %g s (ggeur.deadline.join)",
            missing,
            self._cfg.ggeur.deadline.join,
        )
        if len(self.joined) < max(quorum, 1):
            raise GGEURError(
                f"joining: {len(self.joined)} of {len(wanted)} clients have joined "
                f"within {self._cfg.ggeur.deadline.join:g} s (ggeur.deadline.join) and "
                f"ggeur.quorum asks for {quorum}. Missing: clients {missing}"
            )

    # the run

    def start(self, method: Method | None = None) -> None:
        """Everyone is there: set up the server role, or restore it.

        Parameters
        ----------
        method : Method, optional
            In place of ``ggeur.base_method``.
        """
        agreement, cfg = self._agreement, self._cfg
        roster = {**self._expected, **self.joined}
        settings = run_settings(
            cfg, len(agreement.class_names), agreement.dim, len(roster)
        )
        role = (
            settings.server
            if method is None
            else replace(settings.server, method=method)
        )
        tests = self._data.tests if self._data is not None else {}
        self.coordinator = Coordinator(
            Server(roster, role), settings.plan, tests, self._dismiss
        )
        for number in roster.keys() - self.joined.keys():
            self.coordinator.leave(number, "has not joined again")
        progress = None
        if settings.restore_from:
            progress = restore(settings.restore_from, self.coordinator, agreement)
            if progress is not None:
                self.round0, self.rounds = progress.round0, list(progress.rounds)
        if settings.save_to:
            self._writer = CheckpointWriter(settings.save_to, agreement, progress)
        self._params = self.coordinator.server.params
        for note in method_notes(cfg):
            logger.info(note)
        atexit.register(self.write_unfinished)

    def note_round0(self, round0: Round0) -> None:
        """Round 0 is over."""
        self.round0 = round0
        self._params = self.coordinator.server.params
        logger.info("%s", round0_line(round0))
        if round0.closed_form is not None:
            logger.info("%s", head_line("closed form", round0.closed_form))
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
        logger.info("%s", head_line("calibrated by", record))

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
            head = setting.head_bytes(server.head, self._params)
            write_atomically(self._folder / "head.safetensors", head)
        else:
            logger.info(NO_HEAD)
        return results_table(results)

    def write_unfinished(self) -> None:
        """At the end of the process: what an unfinished run leaves."""
        if self.rounds and self._folder.is_dir():
            # Python notes there what ended the program.
            stopped = getattr(sys, "last_type", None) is KeyboardInterrupt
            self.write("interrupted" if stopped else "failed")

    def _setting(self) -> Setting:
        cfg, data, roster = self._cfg, self._data, self.coordinator.server.roster
        unseen = data.unseen if data is not None else []
        config, domains = plain_config(cfg), [*dict.fromkeys(roster.values()), *unseen]
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
            class_names=list(self._agreement.class_names),
            encoder=self._agreement.encoder,
            clients=[ClientInfo(k, domain, None, None) for k, domain in roster.items()],
        )


def _check_known(join: Join, roster: Mapping[int, str], sender: str) -> None:
    """One of the clients that the run began with, of the domain it had."""
    if join.client not in roster:
        raise MessageError(
            "the run began without it; it can take part in the next run",
            field="client",
            sender=sender,
        )
    if roster[join.client] != join.domain:
        raise MessageError(
            f"{join.domain!r}, but it joined as {roster[join.client]!r} before",
            field="domain",
            sender=sender,
        )


def plain_config(cfg) -> dict:
    """FS's config as nested plain dicts, without what FS keeps beside the settings."""
    copy = cfg.clone()
    copy.defrost()
    copy.clear_aux_info()
    return to_plain(copy)
