"""A site whose process ends after each answer: what it remembers lies in its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from federatedscope_ggeur.cfg_ggeur.keys import all_keys, get_key, put_key
from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.federation.course.client_store import ClientStore
from federatedscope_ggeur.lock import locked
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import RESULTS_FILE
from federatedscope_ggeur.reporting.log_file import logging_to
from federatedscope_ggeur.reporting.run_files import LOG_FILE, PRIVATE

from ..sites.leading import FAILED, FINISH, JOIN
from ..sites.site_folder import Site, SiteMemory, question
from ..sites.streams import transport_settings
from ..sites.transport import Envelope

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
            self._memory, self._site = SiteMemory(self._place), Site(self._cfg)
            if [one.kind for one in asked] == [JOIN]:
                return [self._join(goes_on=bool(asked[0].state))]
            return self._answers(asked)

    def _join(self, goes_on: bool) -> Envelope:
        """Answer the message that asks the site to join."""
        number, memory = self._site.number, self._memory
        if memory.run.get("run") != self._run:
            memory.forget()
            if not goes_on:  # no state of an earlier run may reach this one
                ClientStore(self._state, number).save({})
            own = f"run_{self._run}" if (self._folder / RESULTS_FILE).exists() else ""
            memory.save(run=self._run, folder=own, up=0, down=0)
            logger.info("client %d joins the run %s", number, self._run)
        return self._site.join(transport_settings(self._cfg).security.token().encode())

    @property
    def _state(self) -> Path:
        """Where the state of the run's method is kept."""
        return self._place / "state"

    def _answers(self, asked: Sequence[Envelope]) -> list[Envelope]:
        memory = self._memory
        if memory.run.get("run") != self._run:
            problem = "this site has not joined this run"
            raise MessageError(problem, field="run", sender="the server")
        handler = self._site.handler(str(self._state))
        number = handler.client.number
        handler.resume(memory.asked, ClientStore(self._state, number).load())
        own = self._folder / memory.run["folder"]
        own.mkdir(exist_ok=True)
        leaves = self._site.leaves(own, self._engine, handler)
        leaves.up, leaves.down = memory.run["up"], memory.run["down"]
        for kind, parts in [*memory.asked, *memory.last()]:
            leaves.note_model(kind, parts)
        answers = []
        for one in asked:
            if one.kind == FAILED:
                reason = b"".join(one.parts)[:1000].decode(errors="replace")
                logger.warning("client %d: the server says: %s", number, reason)
                leaves.cut_off("failed")
            elif one.kind == FINISH:
                leaves.end(one.parts)
                memory.forget()
                logger.info("client %d: the run is finished", number)
            else:
                kind = question(one)
                memory.keep(kind, one.parts)
                answer = leaves.reply(one, kind)
                memory.save(up=leaves.up, down=leaves.down)
                if answer:
                    answers.append(answer)
        return answers


@contextmanager
def _private_files() -> Iterator[None]:
    """A context in which only their owner may use new files."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _in_folder(cfg, folder: Path):
    """Put the folders that a site keeps, if relative, into the site's own folder."""
    own = cfg.clone()
    own.defrost()
    for key in all_keys():
        if key.in_site_folder and get_key(own.ggeur, key.name):
            value = get_key(own.ggeur, key.name)
            put_key(own.ggeur, key.name, str(folder / value))
    own.freeze()
    return own


def _unusable(path: Path, error: Exception) -> ConfigError:
    problem = getattr(error, "strerror", None) or error
    return ConfigError(f"the site's folder: '{path}' cannot be used: {problem}")
