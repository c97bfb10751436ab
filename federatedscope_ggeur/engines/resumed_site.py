"""A site whose process ends after each answer: what it remembers lies in its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from federatedscope_ggeur.engines.distributed_data import site_data
from federatedscope_ggeur.engines.leading import FAILED, FINISH, JOIN
from federatedscope_ggeur.engines.sides import (
    Shared,
    client_side,
    handshake_of,
    join_of,
    settings_for,
)
from federatedscope_ggeur.engines.site_folder import SiteFolder, final_message
from federatedscope_ggeur.engines.site_memory import SiteMemory
from federatedscope_ggeur.engines.streams import transport_settings
from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.federation import MemoryBudget
from federatedscope_ggeur.federation.course.client_store import ClientStore
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.lock import locked
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import RESULTS_FILE
from federatedscope_ggeur.reporting.log_file import logging_to
from federatedscope_ggeur.reporting.run_files import LOG_FILE, PRIVATE
from federatedscope_ggeur.transport import Envelope

logger = get_logger(__name__)


class ResumedSite:
    """Answers some of a run's messages for one client.

    Parameters
    ----------
    cfg : CfgNode
        The site's settings.
    folder : path
        The site's own folder. What it remembers lies in ``private/``.
    run : str
        The run's name.
    engine : str
    """

    def __init__(self, cfg, folder: Path, run: str, engine: str):
        self._folder, self._place = folder, folder / PRIVATE
        self._run, self._engine = run, engine
        self._cfg = _in_folder(cfg, self._place)

    def answer(self, asked: Sequence[Envelope]) -> list[Envelope]:
        """Answer messages that came together.

        A message to join alone begins a run. Its round says whether the run goes on
        from a checkpoint.

        Raises
        ------
        GGEURError
            The folder or the data cannot be used, or a request is refused.
        """
        try:
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(self._place, error) from error
        what = f"the site's folder '{self._folder}'"
        with (
            _private_files(),
            locked(self._place / "lock", what, _unusable),
            logging_to(self._folder / LOG_FILE),
        ):
            torch.set_num_threads(int(self._cfg.ggeur.num_threads))
            self._memory, self._data = SiteMemory(self._place), site_data(self._cfg)
            data = self._data
            clients = self._cfg.federate.client_num
            self._settings = settings_for(self._cfg, data.whole, clients, data.text)
            if [one.kind for one in asked] == [JOIN]:
                return [self._join(goes_on=bool(asked[0].state))]
            return self._answers(asked)

    def _join(self, goes_on: bool) -> Envelope:
        """Answer the message that asks the site to join."""
        data, settings, memory = self._data, self._settings, self._memory
        number = data.held.number
        if memory.run.get("run") != self._run:
            memory.forget()
            if not goes_on:  # no state of an earlier run may reach this one
                ClientStore(self._state, number).save({})
            own = f"run_{self._run}" if (self._folder / RESULTS_FILE).exists() else ""
            memory.save(run=self._run, folder=own, up=0, down=0)
            logger.info("client %d joins the run %s", number, self._run)
        handshake = handshake_of(data.whole, settings.agreed, data.text)
        join = join_of(data.held, handshake, settings.demands).to_bytes()
        token = transport_settings(self._cfg).security.token().encode()
        return Envelope(JOIN, 0, (join, token))

    @property
    def _state(self) -> Path:
        """Where the state of the run's method is kept."""
        return self._place / "state"

    def _answers(self, asked: Sequence[Envelope]) -> list[Envelope]:
        memory, data = self._memory, self._data
        if memory.run.get("run") != self._run:
            raise _refusal("run", "this site has not joined this run")
        handler = client_side(
            data.held,
            self._settings,
            Shared(MemoryBudget(self._settings.memory_limit)),
            str(self._state),
        )
        number, before = handler.client.number, memory.asked("[0-9]*")
        handler.resume(before, ClientStore(self._state, number).load())
        own = self._folder / memory.run["folder"]
        own.mkdir(exist_ok=True)
        about = self._cfg, data.held, data.whole, handler, self._settings
        leaves = SiteFolder(own, self._engine, *about)
        leaves.up, leaves.down = memory.run["up"], memory.run["down"]
        for kind, parts in [*before, *memory.asked("last_*")]:
            leaves.note_model(kind, parts)
        kinds, answers = {kind.message: kind for kind in all_kinds()}, []
        for one in asked:
            kind = kinds.get(one.kind)
            if one.kind == FAILED:
                reason = b"".join(one.parts)[:1000].decode(errors="replace")
                logger.warning("client %d: the server says: %s", number, reason)
                leaves.cut_off("failed")
            elif one.kind == FINISH:
                leaves.finish(*final_message(one.parts, handler.client))
                memory.forget()
                logger.info("client %d: the run is finished", number)
            elif kind is None:
                raise _refusal("kind", f"{one.kind!r:.80} is not a question")
            else:
                memory.keep(kind, one)
                answer = leaves.answer(kind, one.parts)
                memory.save(up=leaves.up, down=leaves.down)
                if answer:
                    answers.append(Envelope(kind.answer_message, one.state, answer))
        return answers


def _refusal(field: str, problem: str) -> MessageError:
    return MessageError(problem, field=field, sender="the server")


@contextmanager
def _private_files() -> Iterator[None]:
    """A context in which only their owner may use new files."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


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
