"""The client worker in FederatedScope (FS): passes requests to the client role."""

from __future__ import annotations

from federatedscope.core.communication import StandaloneCommManager
from federatedscope.core.message import Message
from federatedscope.core.workers import Client as FSClient

from federatedscope_ggeur.cfg_ggeur.run_settings import use_threads
from federatedscope_ggeur.errors import GGEURError, without_folders
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.printable import get_logger

from ..run import check_client_place, take_sigterm
from ..sites.leading import CONVERGED, FAILED, FINISH, JOIN
from ..sites.site_folder import SiteFolder, final_message, model_line
from ..sites.transport.link import Rejoining
from ..sites.watch import Watch, closing
from ..workers import handshake_of, join_of
from .channel import ClientManager, message
from .config import check
from .user_errors import follow_fs_logging, for_constructor

logger = get_logger(__name__)


class GGEURClient(FSClient):
    """One client of ``federate.method: ggeur``.

    Its number is its data index, whatever FS calls it. The client role in its trainer
    does the work. This worker passes messages. In distributed mode it also joins again
    when the server was restarted.
    """

    def __init__(
        self, ID=-1, server_id=None, state=-1, config=None, data=None, *args, **kwargs
    ):
        given = config
        if config is not None:
            check(config)
            follow_fs_logging()
            use_threads(config)
            given = for_constructor(config)
        super().__init__(ID, server_id, state, given, data, *args, **kwargs)
        if config is None:
            return
        self._cfg, self.mode = config, config.federate.mode.lower()
        self.trainer.config = config
        self.model = self.trainer.model
        self.number = data.held.number
        self.ID = self.number
        if self.mode == "standalone":
            self.comm_manager = StandaloneCommManager(
                comm_queue=kwargs["shared_comm_queue"], monitor=self._monitor
            )
        else:
            check_client_place(config, self.number)
            self.leaves = SiteFolder(
                config.outdir,
                "federatedscope distributed",
                config,
                self.data.held,
                self.data,
                self.trainer,
                self.trainer.settings,
            )
            self.comm_manager = ClientManager(
                kwargs["server_host"], kwargs["server_port"], config
            )
        self._watch: Watch | None = None
        self._doing, self._runs = "", False

    def _register_default_handlers(self):
        for kind in all_kinds():
            answers = [kind.answer_message] if kind.answer_message else []
            self.register_handlers(
                kind.message, self.callback_for_request, [*answers, FAILED]
            )
        self.register_handlers(FINISH, self.callback_funcs_for_finish, [None])
        self.register_handlers(CONVERGED, self.callback_funcs_for_converged, [None])

    def join_in(self):
        """Send the server the message to join, with the handshake."""
        self._doing = "waiting for the server to take this client"
        if self.mode == "distributed" and self._watch is None:
            role = f"client {self.number}"
            self._watch = Watch(self._cfg.outdir, role, lambda: {"doing": self._doing})
        try:
            self._join_in()
        except BaseException:
            if self._watch is not None and not self._runs:
                self._watch.close("failed")
            raise

    def _join_in(self) -> None:
        data = self.data
        settings = self.trainer.settings
        handshake = handshake_of(data, settings.agreed, data.prepared)
        join = join_of(data.held, handshake, settings.demands)
        self._send(JOIN, 0, (join.to_bytes(),))

    def run(self):
        """Distributed mode: answer the server until it finishes.

        Raises
        ------
        GGEURError
            The server refused this client, ended the run with an error, or is silent.
            Or the server could not be reached again within ``ggeur.deadline.join``
            seconds, or was lost too often.
        """
        with closing(self._watch):
            self._runs = True
            self._answer_all()

    def _answer_all(self) -> None:
        leave_sigterm = take_sigterm()
        try:
            Rejoining().until(self._step, self.join_in)
        except BaseException as error:
            if not (line := self.leaves.ended_by(error, self._watch)):
                raise
            logger.warning("%s", line)
        finally:
            leave_sigterm()
            self.comm_manager.close()

    def _step(self) -> bool:
        """Handle the next message; returns whether it was the last one."""
        self._doing = "waiting for the server"
        received = self.comm_manager.receive()
        self._monitor.track_download_bytes(sum(map(len, received.content)))
        self.msg_handlers.get(received.msg_type, self._unknown)(received)
        return received.msg_type == FINISH

    def callback_for_request(self, message: Message):
        """Answer any request of the server with the role's answer."""
        kind = next(k for k in all_kinds() if k.message == message.msg_type)
        self.state = message.state
        self._doing = f"answering: {kind.name.replace('_', ' ')} (round {self.state})"
        if kind is TRAIN and self._is_new():
            logger.warning(
                "client %d: ignored a request to train that was sent to an earlier "
                "connection",
                self.number,
            )
            return
        # A client in a process of its own has a folder of its own, too.
        side = self.leaves if self.mode == "distributed" else self.trainer
        try:
            answer = side.answer(kind, message.content)
        except GGEURError as error:
            if self.mode == "distributed":
                reason = without_folders(str(error))
                self._send(FAILED, message.state, (reason.encode(),))
            raise
        if answer:
            self._send(kind.answer_message, message.state, answer)

    # FS's own names for two of the requests.
    callback_funcs_for_model_para = callback_for_request
    callback_funcs_for_evaluate = callback_for_request

    def callback_funcs_for_finish(self, message: Message):
        """Take the final head into `model`, write the files, and end FS's client."""
        final, _ = final_message(message.content, self.trainer.client)
        if self.mode == "distributed":
            left = self.leaves.end(message.content)
            logger.info("%s", model_line(self.number, self._cfg.outdir, left))
        self.trainer.take_head(self.trainer.own_params(final))
        self.model = self.trainer.model
        logger.info("client %d: the run is finished", self.number)
        self._monitor.finish_fl()

    def _is_new(self) -> bool:
        """Whether this process has no state of a run, so it may have been restarted."""
        return self.mode == "distributed" and self.trainer.client.recipe is None

    def _unknown(self, message: Message) -> None:
        raise GGEURError(
            f"the server sent a message of the unknown type {message.msg_type!r}; run "
            "the same release of federatedscope_ggeur everywhere"
        )

    def _send(self, message_type: str, state: int, parts: tuple[bytes, ...]) -> None:
        size = sum(map(len, parts))
        self._monitor.track_upload_bytes(size)
        self.comm_manager.send(message(message_type, state, parts, self.number))
