"""The client worker: carries requests to the client role, in FederatedScope (FS)."""

from __future__ import annotations

import torch
from federatedscope.core.communication import StandaloneCommManager
from federatedscope.core.message import Message
from federatedscope.core.workers import Client as FSClient

from federatedscope_ggeur.cfg_ggeur.start_notes import client_notes
from federatedscope_ggeur.engines.checkpoints import check_client_place
from federatedscope_ggeur.engines.fs.channel import SERVER, ClientManager
from federatedscope_ggeur.engines.fs.config import check
from federatedscope_ggeur.engines.fs.own_model import write_own_model
from federatedscope_ggeur.engines.fs.rejoining import Rejoining
from federatedscope_ggeur.engines.fs.setup import follow_fs_logging, for_constructor
from federatedscope_ggeur.engines.leading import CONVERGED, FAILED, FINISH, JOIN
from federatedscope_ggeur.engines.sides import handshake_of, join_of
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import PREPARE
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EVALUATE
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.federation.holdings import Holdings
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting.results import Status
from federatedscope_ggeur.transport import ConnectionLost

logger = get_logger(__name__)


class GGEURClient(FSClient):
    """One client of ``federate.method: ggeur``.

    Its number is its data index, whatever FS calls it. All that it does is done by the
    client role in its trainer; this worker carries messages, and in distributed mode
    joins again when the server was restarted.
    """

    def __init__(
        self, ID=-1, server_id=None, state=-1, config=None, data=None, *args, **kwargs
    ):
        given = config
        if config is not None:
            check(config)
            follow_fs_logging()
            torch.set_num_threads(int(config.ggeur.num_threads))
            given = for_constructor(config)
        super().__init__(ID, server_id, state, given, data, *args, **kwargs)
        if config is None:
            return
        self._cfg, self.mode = config, config.federate.mode.lower()
        self.trainer.config = config
        self.model = self.trainer.model
        self.number = data.held.number
        self.ID = self.number
        #: What was scored last, until a model of it is written.
        self._scored: bytes | None = None
        if self.mode == "standalone":
            self.comm_manager = StandaloneCommManager(
                comm_queue=kwargs["shared_comm_queue"], monitor=self._monitor
            )
        else:
            check_client_place(config, self.number)
            self.comm_manager = ClientManager(
                kwargs["server_host"], kwargs["server_port"], config
            )
        self.local_address = None

    def _register_default_handlers(self):
        for kind in all_kinds():
            answers = [kind.answer_message] if kind.answer_message else []
            self.register_handlers(
                kind.message, self.callback_for_request, [*answers, FAILED]
            )
        self.register_handlers(FINISH, self.callback_funcs_for_finish, [None])
        self.register_handlers(CONVERGED, self.callback_funcs_for_converged, [None])

    def join_in(self):
        """Tell the server who this is and what it must have in common with it."""
        data = self.data
        handshake = handshake_of(data, self.trainer.settings.agreed, data.text)
        self._send(JOIN, 0, (join_of(data.held, handshake).to_bytes(),))

    def run(self):
        """Distributed mode: answer the server until it finishes.

        Raises
        ------
        GGEURError
            The server refused this client or ended the run with an error, is silent,
            could not be reached again within ``ggeur.deadline.join`` seconds, or was
            lost again and again.
        """
        rejoining = Rejoining()
        try:
            while True:
                try:
                    message = self.comm_manager.receive()
                    self._monitor.track_download_bytes(sum(map(len, message.content)))
                    self.msg_handlers.get(message.msg_type, self._unknown)(message)
                    if message.msg_type == FINISH:
                        return
                except ConnectionLost as error:
                    logger.warning("%s; joining again", error)
                    rejoining.pause(error)
                    self.join_in()
                    rejoining.joined()
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            self._leave_scored("interrupted" if stopped else "failed")
            raise
        finally:
            self.comm_manager.close()

    def callback_for_request(self, message: Message):
        """Any request of the server: the role's answer goes back."""
        kind = next(k for k in all_kinds() if k.message == message.msg_type)
        self.state = message.state
        if kind is TRAIN and self._is_new():
            logger.warning(
                "client %d: a request to train that was meant for the connection "
                "before this one is ignored",
                self.number,
            )
            return
        try:
            answer = self.trainer.answer(kind, message.content)
        except GGEURError as error:
            if self.mode == "distributed":
                self._send(FAILED, message.state, (str(error).encode(),))
            raise
        if kind is PREPARE and self.mode == "distributed":
            self._log_notes()
        if kind is EVALUATE and self.mode == "distributed":
            self._scored = message.content[0]
        if answer:
            self._send(kind.answer_message, message.state, answer)

    def _log_notes(self) -> None:
        """What there is to say at the start, which here the client alone knows."""
        held = Holdings.of([self.data.held], self.data.num_classes)
        settings, recipe = self.trainer.settings, self.trainer.client.recipe
        sets = recipe.rows, recipe.whole
        for note in client_notes(self._cfg, settings, held, *sets):
            logger.info("client %d: %s", self.number, note)

    # FS's own names for two of the requests.
    callback_funcs_for_model_para = callback_for_request
    callback_funcs_for_evaluate = callback_for_request

    def callback_funcs_for_finish(self, message: Message):
        """The final head, or the client's own, comes into `model`; FS ends its part."""
        client = self.trainer.client
        final = Broadcast.from_bytes(message.content[0], client.scored_schema)
        self._scored = None
        self._leave(final, "finished")
        self.trainer.take_head(self.trainer.own_params(final))
        self.model = self.trainer.model
        logger.info("client %d: the run is finished", self.number)
        self._monitor.finish_fl()

    def _leave(self, scored: Broadcast, status: Status) -> None:
        """Distributed mode: write the client's own model, where it has one. (In
        standalone mode the server writes those of all clients.)"""
        settings, client = self.trainer.settings, self.trainer.client
        own = settings.plan.leaves_own(client.task.method)
        if self.mode == "distributed" and (own or client.personal is not None):
            write_own_model(self._cfg, self.data, client, scored, status)
            logger.info("client %d: its own model is in its folder", self.number)

    def _leave_scored(self, status: Status) -> None:
        """The run is cut off: write what was scored last."""
        if self._scored is None:
            return
        data, self._scored = self._scored, None
        try:
            self._leave(
                Broadcast.from_bytes(data, self.trainer.client.scored_schema), status
            )
        except GGEURError as error:  # what ended the run is the error to raise
            logger.warning("its own model is not written: %s", error)

    def _is_new(self) -> bool:
        """Whether the server has not noticed yet that this process is another one."""
        return self.mode == "distributed" and self.trainer.client.recipe is None

    def _unknown(self, message: Message) -> None:
        raise GGEURError(
            f"the server sent a message of the unknown type {message.msg_type!r}; run "
            "the same release of federatedscope_ggeur everywhere"
        )

    def _send(self, message_type: str, state: int, parts: tuple[bytes, ...]) -> None:
        size = sum(map(len, parts))
        self._monitor.track_upload_bytes(size)
        self.comm_manager.send(
            Message(
                msg_type=message_type,
                sender=self.number,
                receiver=[SERVER],
                state=state,
                timestamp=0,
                content=parts,
            )
        )
