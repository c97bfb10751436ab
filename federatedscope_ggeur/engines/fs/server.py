"""The server worker: carries the coordinator's requests inside FederatedScope (FS)."""

from __future__ import annotations

import logging

import torch
from federatedscope.core.communication import StandaloneCommManager
from federatedscope.core.message import Message
from federatedscope.core.workers import Server as FSServer

from federatedscope_ggeur.cfg_ggeur.fs_keys import switches
from federatedscope_ggeur.cfg_ggeur.run_settings import server_evaluates
from federatedscope_ggeur.engines.fs.channel import SERVER, ServerManager
from federatedscope_ggeur.engines.fs.config import check
from federatedscope_ggeur.engines.fs.course import LeadsCourse
from federatedscope_ggeur.engines.fs.driver import Driver
from federatedscope_ggeur.engines.fs.federation import Federation
from federatedscope_ggeur.engines.fs.fs_scores import KeepsScores, use_plain_floats
from federatedscope_ggeur.engines.fs.serving import ServesStreams
from federatedscope_ggeur.engines.fs.setup import DeferredMode, follow_fs_logging
from federatedscope_ggeur.engines.fs.vocabulary import (
    DOWN,
    FAILED,
    FINISH,
    JOIN,
    KIND_OF_UP,
)
from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation.course.requests import Absence
from federatedscope_ggeur.federation.messages.handshake import Join

logger = logging.getLogger(__name__)


class GGEURServer(DeferredMode, ServesStreams, LeadsCourse, KeepsScores, FSServer):
    """The server of ``federate.method: ggeur``.

    FS's course stays: clients join, `trigger_for_feat_engr` is round 0, every training
    round begins with `broadcast_model_para`, scores go through `eval`, and
    `check_and_save` ends the run. What is asked, waited for and computed in each of
    them is the coordinator's.
    """

    def __init__(
        self,
        ID=-1,
        state=0,
        config=None,
        data=None,
        model=None,
        client_num=5,
        total_round_num=10,
        device="cpu",
        strategy=None,
        unseen_clients_id=None,
        **kwargs,
    ):
        if config is not None:
            check(config)
            follow_fs_logging()
            torch.set_num_threads(int(config.ggeur.num_threads))
        super().__init__(
            ID,
            state,
            config and _for_fs(config),
            data,
            model,
            client_num,
            total_round_num,
            device,
            strategy,
            unseen_clients_id,
            **kwargs,
        )
        if config is None:
            return
        self.set_up()
        self._cfg = config
        use_plain_floats(self._monitor)
        self.federation = Federation(config, data, self._dismiss)
        ggeur = config.ggeur
        self._driver = Driver(
            self._send_request,
            {
                "statistics": ggeur.deadline.round0,
                "prepare": ggeur.deadline.round0,
                "train": ggeur.deadline.train,
                "score": ggeur.deadline.evaluate,
                "calibrate": ggeur.deadline.round0,
            },
        )
        if self.mode == "standalone":
            self.comm_manager = StandaloneCommManager(
                comm_queue=kwargs["shared_comm_queue"], monitor=self._monitor
            )
        else:
            self.comm_manager = ServerManager(
                kwargs["host"], kwargs["port"], client_num, config
            )
            logger.info("listening on %s:%d", kwargs["host"], self.comm_manager.port)

    def _register_default_handlers(self):
        self.register_handlers(
            JOIN, self.callback_funcs_for_join_in, [DOWN["statistics"]]
        )
        answers = {
            "statistics": [DOWN["prepare"]],
            "prepare": [DOWN["share"], DOWN["train"], DOWN["score"]],
            "train": [DOWN["train"], DOWN["score"], DOWN["calibrate"], FINISH],
            "score": [DOWN["train"], DOWN["calibrate"], "converged", FINISH],
            "calibrate": [DOWN["score"], FINISH],
        }
        for message_type, kind in KIND_OF_UP.items():
            self.register_handlers(
                message_type, self.callback_for_answer, answers[kind]
            )
        self.register_handlers(FAILED, self.callback_for_failure, [None])

    # joining

    def callback_funcs_for_join_in(self, message: Message):
        """A client joins, or joins again after its connection was lost.

        Raises
        ------
        GGEURError
            In standalone mode, where a client that does not fit is a wrong setting.
        """
        number = message.sender
        try:
            if len(message.content) != 1:
                raise MessageError(
                    f"expected one part, got {len(message.content)}",
                    field="parts",
                    sender=f"client {number}",
                )
            join = Join.from_bytes(message.content[0], f"client {number}")
            self.federation.admit(join)
        except GGEURError as error:
            if self.mode == "standalone":
                raise
            logger.warning("%s", error)
            self._dismiss(number, str(error))
            return
        self.comm_manager.add_neighbors(number)
        self.join_in_client_num = len(self.federation.joined)
        logger.info(
            "client %d (domain %s) has joined: %d of %d",
            number,
            join.domain,
            self.join_in_client_num,
            self.client_num,
        )
        if not self.federation.started:
            self.trigger_for_start()

    def check_client_join_in(self):
        return self.federation.complete

    def callback_for_answer(self, message: Message):
        """An answer to the request under way; any other is ignored with a log line."""
        number = message.sender
        kind = KIND_OF_UP[message.msg_type]
        federation = self.federation
        if not self._driver.answer(number, kind, message.state, tuple(message.content)):
            federation.heard_from(number)

    # FS's own names for answers.
    callback_funcs_model_para = callback_for_answer
    callback_funcs_for_metrics = callback_for_answer

    def callback_for_failure(self, message: Message):
        """A client says why it stops."""
        reason = b"".join(message.content)[:1000].decode(errors="replace")
        # On one line, so that nobody writes lines of its own into the log.
        self._lose(message.sender, " ".join(reason.split()))

    def _dismiss(self, number: int, reason: str) -> None:
        if self.mode == "distributed":
            self.comm_manager.hub.dismiss(number, reason)

    def _send_request(self, request) -> dict[int, Absence]:
        gone = self.federation.gone
        by_content: dict[tuple, list[int]] = {}
        for number, parts in request.parts.items():
            by_content.setdefault(tuple(map(id, parts)), []).append(number)
        for numbers in by_content.values():
            parts = request.parts[numbers[0]]
            self._send(DOWN[request.kind], numbers, parts, request.round_number)
        return {k: Absence(gone[k]) for k in request.parts if k in gone}

    def _send(self, message_type, receivers, parts, state: int | None = None) -> None:
        self._monitor.track_upload_bytes(sum(map(len, parts)) * len(receivers))
        self.comm_manager.send(
            Message(
                msg_type=message_type,
                sender=SERVER,
                receiver=receivers,
                state=self.state if state is None else state,
                timestamp=0,
                content=parts,
            )
        )


def _for_fs(config):
    """The config without what FS's constructor would do itself: unpickle the file in
    ``federate.restore_from``, and make a server optimiser of the base method's; and
    with a trainer where, and only where, the server scores."""
    copy = config.clone()
    copy.defrost()
    copy.federate.restore_from = ""
    for section in switches():
        copy[section].use = False
    copy.federate.make_global_eval = server_evaluates(config)
    copy.freeze(inform=False, save=False, check_cfg=False)
    return copy
