"""The resident: a site's own process. Only it reads the site's data and settings.

Flower sends the server's code to the sites. Where a site runs it, that code only gets
the answers of this process. The process only answers what the site's own file allows.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from federatedscope_ggeur.engines.distributed_data import site_data
from federatedscope_ggeur.engines.flower.carried import (
    DONE,
    NOBODY,
    RESTARTED,
    SESSION,
    packed,
    unpacked,
)
from federatedscope_ggeur.engines.flower.pipe import read_block, write_block
from federatedscope_ggeur.engines.leading import FAILED, FINISH, JOIN
from federatedscope_ggeur.engines.sides import (
    Shared,
    client_side,
    handshake_of,
    join_of,
    settings_for,
)
from federatedscope_ggeur.engines.site_folder import SiteFolder, final_message
from federatedscope_ggeur.engines.streams import transport_settings
from federatedscope_ggeur.engines.watch import Watch, closing
from federatedscope_ggeur.errors import (
    ConfigError,
    GGEURError,
    MessageError,
    without_folders,
)
from federatedscope_ggeur.federation import MemoryBudget
from federatedscope_ggeur.federation.course.client_handler import ClientHandler
from federatedscope_ggeur.federation.course.client_store import ClientStore
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.lock import locked
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import RESULTS_FILE
from federatedscope_ggeur.reporting.results import Status
from federatedscope_ggeur.transport import Envelope

logger = get_logger(__name__)

#: In the site's folder: the socket, and the run that this folder answers.
SOCKET, RUN = "socket", "run"
_RUN_ID = re.compile(r"[0-9a-f]{16,64}")
#: Seconds in which a ClientApp must hand over a whole message.
_PATIENCE = 60.0
_SERVER = "the server"


class Resident:
    """Answers for one client.

    It belongs to the first run that asks, and refuses any other run. So a site gives
    its answers to one run only, unless its user allows a new run.

    Parameters
    ----------
    cfg : CfgNode
        The site's file.
    folder : path
        The site's own folder. It must exist and be locked.

    Attributes
    ----------
    number : int
        The client's number.
    finished : bool
        Whether the run is over.
    doing : str
        What it is doing, for the status file.

    Raises
    ------
    ConfigError, DataError
        The data cannot be read, or the folder's files cannot be used.
    """

    def __init__(self, cfg, folder: Path):
        self._folder, self._cfg = folder, _in_folder(cfg, folder)
        cfg = self._cfg
        torch.set_num_threads(int(cfg.ggeur.num_threads))
        self._carried = transport_settings(cfg)
        self._data = data = site_data(cfg)
        clients = cfg.federate.client_num
        self._settings = settings_for(cfg, data.whole, clients, data.text)
        handshake = handshake_of(data.whole, self._settings.agreed, data.text)
        demands = self._settings.demands
        self._join = join_of(data.held, handshake, demands).to_bytes()
        self._token = self._carried.security.token().encode()
        self._kinds = {kind.message: kind for kind in all_kinds()}
        self.number, self.finished = data.held.number, False
        self._session, self._server = NOBODY, b""
        self.doing = "waiting for the server's first question"
        self._handler = self._new_handler()
        self._leaves: SiteFolder | None = None

    def close(self, status: Status) -> None:
        """Write the last model that arrived, if the run is not finished."""
        if self._leaves is not None and not self.finished:
            self._leaves.cut_off(status)

    def _new_handler(self) -> ClientHandler:
        """A new handler; it knows only what the folder keeps."""
        shared = Shared(MemoryBudget(self._settings.memory_limit))
        place = self._settings.save_to or str(self._folder / "state")
        handler = client_side(self._data.held, self._settings, shared, place)
        handler.client.states = ClientStore(place, self.number).load()
        return handler

    def answer(self, data: bytes) -> bytes:
        """Answer bytes that came through Flower. They may come from anybody."""
        try:
            session, asked = unpacked(data, self._carried, _SERVER)
            replies = self._answers(session, asked)
        except GGEURError as error:
            logger.warning("client %d: refused: %s", self.number, error)
            reason = without_folders(str(error))
            replies = [Envelope(FAILED, 0, (reason.encode(),))]
        return packed(self._session, replies, self._carried)

    def _answers(self, session: bytes, asked: Sequence[Envelope]) -> list[Envelope]:
        if len(asked) == 1 and asked[0].kind == JOIN:
            return [self._joined(asked[0].parts)]
        if session == NOBODY or session != self._session:
            return [Envelope(RESTARTED)]
        replies = [self._reply(one) for one in asked]
        return [one for one in replies if one is not None] or [Envelope(DONE)]

    def _joined(self, parts: Sequence[bytes]) -> Envelope:
        """Answer the server of the folder's run with the message to join."""
        if len(parts) != 2 or len(parts[1]) != SESSION:
            raise _refusal("parts", "must be a run and a server")
        run, server = parts[0][:80].decode(errors="replace"), parts[1]
        if not _RUN_ID.fullmatch(run):
            raise _refusal("run", f"{run!r} is not the id of a run")
        path, place = self._folder / RUN, self._folder / f"run_{run[:16]}"
        if not path.exists():
            if (self._folder / RESULTS_FILE).exists():  # an earlier run's
                place.mkdir(mode=0o700, exist_ok=True)
            write_atomically(path, f"{run}\n", mode=0o600)
        known = path.read_text(encoding="utf-8").strip()
        if run != known:
            raise _refusal(
                "run",
                f"the run is {run}, but this site's folder answers the run {known}; "
                "to join another run, its user starts the site with --new-run",
            )
        if server != self._server:
            # The server begins, or goes on from a checkpoint: the old state is invalid.
            self._handler, self._server = self._new_handler(), server
            self._session = secrets.token_bytes(SESSION)
            own = place if place.exists() else self._folder
            self._leaves = SiteFolder(
                own,
                "flower",
                self._cfg,
                self._data.held,
                self._data.whole,
                self._handler,
                self._settings,
            )
            logger.info("client %d joins the run %s", self.number, run)
        return Envelope(JOIN, 0, (self._join, self._token))

    def _reply(self, asked: Envelope) -> Envelope | None:
        kind, state = self._kinds.get(asked.kind), asked.state
        if asked.kind == FAILED:
            reason = b"".join(asked.parts)[:1000].decode(errors="replace")
            logger.warning("client %d: the server says: %s", self.number, reason)
            self.close("failed")
            self.doing = "waiting for a server that goes on with the run"
            return None
        if asked.kind == FINISH:
            self._leaves.finish(*final_message(asked.parts, self._handler.client))
            self.finished = True
            logger.info("client %d: the run is finished", self.number)
            return None
        if kind is None:
            raise _refusal("kind", f"{asked.kind!r} is not a question")
        self.doing = f"answering: {kind.name.replace('_', ' ')} (round {state})"
        answer = self._leaves.answer(kind, asked.parts)
        self.doing = "waiting for the server"
        return Envelope(kind.answer_message, state, answer) if answer else None


def _refusal(field: str, problem: str) -> MessageError:
    return MessageError(problem, field=field, sender=_SERVER)


class _Connection(socketserver.StreamRequestHandler):
    """One connection from a ClientApp, with one message."""

    timeout = _PATIENCE
    server: _Socket

    def handle(self) -> None:
        try:
            write_block(self.wfile, self.server.answer(self.rfile))
        except OSError as error:
            logger.warning("a connection to the resident ended: %s", error)


class _Socket(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, resident: Resident, most: int):
        self._resident, self._most = resident, most
        self._turn = threading.Lock()
        self._last: threading.Thread | None = None
        super().__init__(path, _Connection)

    def answer(self, file) -> bytes:
        data = read_block(file, self._most)
        with self._turn:
            return self._resident.answer(data)

    def shutdown_request(self, request) -> None:
        super().shutdown_request(request)
        if self._resident.finished:
            self._last = threading.current_thread()
            self.shutdown()

    def server_close(self) -> None:
        super().server_close()
        # A thread that has used torch may abort the process if it ends after Python.
        if self._last is not None:
            self._last.join()

    def handle_error(self, request, client_address) -> None:
        logger.exception("an answer failed; the resident goes on")


@contextmanager
def _private_files() -> Iterator[None]:
    """A context in which only their owner may use new files."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@_private_files()
def serve_site(
    cfg,
    folder: Path,
    new_run: bool = False,
    path: Path | None = None,
    group: str = "",
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Answer for the client of the site's file `cfg` until its run is over.

    Parameters
    ----------
    cfg : CfgNode
    folder : path
        The site's own folder; made if it is missing. It keeps what a restart needs.
    new_run : bool
        Whether to forget the run that the folder belongs to.
    path : path, optional
        The socket that ClientApps connect to; by default in the folder.
    group : str
        A group of the system whose members may connect, too. "": only this process's
        user may connect.
    meanwhile : callable ()
        Called again and again while it waits for connections.

    Raises
    ------
    ConfigError, DataError
        The folder, the socket or the data cannot be used.
    """
    path = path or folder / SOCKET
    if group and folder.resolve() in path.resolve().parents:
        raise ConfigError(
            f"--group: only its owner may enter the site's folder '{folder}', so name "
            "another place for the socket (--socket)"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise _unusable(folder, error) from error
    with locked(folder / "lock", f"the site's folder '{folder}'", _unusable):
        if new_run:
            (folder / RUN).unlink(missing_ok=True)
        resident = Resident(cfg, folder)
        with _listening(path, group, resident, cfg) as server:
            server.service_actions = meanwhile
            logger.info("client %d answers at %s", resident.number, path)
            role = f"client {resident.number}"
            watch = Watch(folder, role, lambda: {"doing": resident.doing})
            try:
                with closing(watch):
                    server.serve_forever(poll_interval=0.2)
            finally:
                resident.close("interrupted")
                path.unlink(missing_ok=True)


def _listening(path: Path, group: str, resident: Resident, cfg) -> _Socket:
    try:
        if path.is_socket():  # of a process that was killed
            path.unlink()
        server = _Socket(str(path), resident, 2 * transport_settings(cfg).max_message)
        if group:
            shutil.chown(path, group=group)
            path.chmod(0o660)
    except (OSError, LookupError) as error:
        raise _unusable(path, error) from error
    return server


def _in_folder(cfg, folder: Path):
    """Put the journal of sums and the ledger, if relative, into the site's folder."""
    own = cfg.clone()
    own.defrost()
    privacy = own.ggeur.privacy
    privacy.secure_sums_store = str(folder / privacy.secure_sums_store)
    if privacy.dp.ledger:
        privacy.dp.ledger = str(folder / privacy.dp.ledger)
    own.freeze()
    return own


def _unusable(path: Path, error: Exception) -> ConfigError:
    problem = getattr(error, "strerror", None) or error
    return ConfigError(f"the site's folder: '{path}' cannot be used: {problem}")
