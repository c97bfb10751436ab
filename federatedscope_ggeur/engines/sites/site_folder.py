"""One site of a federation, and the folder with its model and its own scores.

All engines use it whose clients have folders of their own. The engine reports each
message of the server, and how the run ended.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch

from federatedscope_ggeur import models, reporting
from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.keys import all_keys, get_key, put_key
from federatedscope_ggeur.cfg_ggeur.run_settings import RunSettings, use_threads
from federatedscope_ggeur.cfg_ggeur.start_notes import client_notes, privacy_of
from federatedscope_ggeur.cfg_ggeur.yaml_file import plain_config
from federatedscope_ggeur.data import ClientData
from federatedscope_ggeur.errors import GGEURError, MessageError, refusing
from federatedscope_ggeur.federation import Client, MemoryBudget
from federatedscope_ggeur.federation.course.client_handler import (
    ClientHandler,
    ClientStore,
)
from federatedscope_ggeur.federation.course.coordinator import Ending
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import PREPARE
from federatedscope_ggeur.federation.exchanges.base import (
    RequestKind,
    all_kinds,
    due_exchanges,
)
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EVALUATE,
    EvaluationClient,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.federation.holdings import Holdings
from federatedscope_ggeur.files import read_regular, write_atomically
from federatedscope_ggeur.lock import locked
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting.lines import percent
from federatedscope_ggeur.reporting.results import Status
from federatedscope_ggeur.reporting.run_files import LOG_FILE, PRIVATE, logging_to

from .. import workers
from .content import UNLIMITED, packed, unpacked
from .keys import private_folder, unusable
from .leading import FAILED, FINISH, JOIN, STOPPED, reason_of
from .roles import site_data, transport_settings
from .transport import Envelope, HubClosed
from .watch import Watch

logger = get_logger(__name__)


def final_message(parts: Sequence[bytes], client: Client) -> tuple[Broadcast, Ending]:
    """Read the server's last message to `client`.

    Raises
    ------
    MessageError
        The message is not one that ends a run.
    """
    if len(parts) != 2:
        problem = f"expected two parts, got {len(parts)}"
        raise MessageError(problem, field="parts", sender="the server")
    final = Broadcast.from_bytes(parts[0], client.scored_schema)
    return final, Ending.from_bytes(parts[1])


def model_line(number: int, folder: Path | str, left: reporting.Results) -> str:
    """A line on what a client has after a run: its model and its own score."""
    score = left.final.avg
    own = "" if score is None else f"; on its own test rows {percent(score)}%"
    return f"client {number}: the model is in {folder}{own}"


def question(asked: Envelope) -> RequestKind:
    """What the server's message asks.

    Raises
    ------
    MessageError
        The message asks nothing that this release knows.
    """
    for kind in all_kinds():
        if kind.message == asked.kind:
            return kind
    raise MessageError(
        f"{asked.kind!r:.80} is not a question; run the same release of "
        "federatedscope_ggeur everywhere",
        field="kind",
        sender="the server",
    )


class Site:
    """A site: its rows, its settings, and what it joins and answers with.

    Parameters
    ----------
    cfg : CfgNode

    Attributes
    ----------
    data : SiteData
    settings : RunSettings
    number : int
        The client's number.

    Raises
    ------
    ConfigError, DataError
        The errors of `site_data`.
    """

    def __init__(self, cfg):
        self._cfg, self.data = cfg, site_data(cfg)
        whole, prepared = self.data.whole, self.data.prepared
        clients = cfg.federate.client_num
        self.settings = workers.settings_for(cfg, whole, clients, prepared)
        self._handshake = workers.handshake_of(whole, self.settings.agreed, prepared)
        self.number = self.data.held.number

    def join(self, *more: bytes) -> Envelope:
        """The message by which the site joins."""
        join = workers.join_of(self.data.held, self._handshake, self.settings.demands)
        return Envelope(JOIN, 0, (join.to_bytes(), *more))

    def handler(self, save_to: str = "", asked: bool = True) -> ClientHandler:
        """What answers for the site; see `client_side`."""
        shared = workers.Shared(MemoryBudget(self.settings.memory_limit))
        return workers.client_side(
            self.data.held, self.settings, shared, save_to, asked
        )

    def leaves(self, folder: Path, engine: str, side: Side) -> SiteFolder:
        """The folder for what the site gets of a run."""
        held, whole = self.data.held, self.data.whole
        return SiteFolder(folder, engine, self._cfg, held, whole, side, self.settings)


class Side(Protocol):
    """What answers for a client, such as a `ClientHandler`."""

    client: Client

    def answer(
        self, kind: RequestKind, parts: Sequence[bytes]
    ) -> tuple[bytes, ...]: ...


class SiteFolder:
    """Follows one client's run, and writes its model and scores.

    Parameters
    ----------
    folder : path
        The client's own run folder. It must exist.
    engine : str
    cfg : the site's own settings
    held : ClientData
        The site's rows.
    data : Described
        Names the classes and the encoder.
    side : Side
        Answers for the client.
    settings : RunSettings

    Attributes
    ----------
    up, down : int
        The bytes of answers and of requests.
    """

    def __init__(
        self,
        folder,
        engine: str,
        cfg,
        held: ClientData,
        data: workers.Described,
        side: Side,
        settings: RunSettings,
    ):
        self._folder, self._held = Path(folder), held
        self._side, self._client, self._settings = side, side.client, settings
        self._begun = _begun(engine, cfg, held, data)
        self._evaluation = EvaluationClient(self._client, {})
        self._scored: bytes | None = None
        self._trained: bytes | None = None
        self.up = self.down = 0

    def answer(self, kind: RequestKind, parts: Sequence[bytes]) -> tuple[bytes, ...]:
        """Answer a request of the server; see `ClientHandler.answer`.

        When the augmented set is made, what only this client can know of it is logged.
        """
        self.down += sum(map(len, parts))
        self.note_model(kind, parts)
        answer = self._side.answer(kind, parts)
        self.up += sum(map(len, answer))
        if kind is PREPARE:
            self._log_notes()
        return answer

    def reply(self, asked: Envelope, kind: RequestKind) -> Envelope | None:
        """The message that answers a request; None if no answer is due."""
        answer = self.answer(kind, asked.parts)
        return Envelope(kind.answer_message, asked.state, answer) if answer else None

    def note_model(self, kind: RequestKind, parts: Sequence[bytes]) -> None:
        """Keep a request's model for `cut_off`, if the request has one."""
        if kind is EVALUATE and parts:
            self._scored = parts[0]
        elif kind is TRAIN and parts:
            self._trained = parts[0]

    def _log_notes(self) -> None:
        held, recipe = self._held, self._client.recipe
        assert recipe is not None, "the augmented set is made"
        holdings = Holdings.of([held], len(self._begun.class_names))
        rows, whole = recipe.rows, recipe.whole
        for note in client_notes(self._settings, holdings, rows, whole):
            logger.info("client %d: %s", held.number, note)

    def end(self, parts: Sequence[bytes]) -> reporting.Results:
        """Take the server's last message; write the final model and own scores.

        Raises
        ------
        MessageError
            The message is not one that ends a run.
        ConfigError
            A file cannot be written.
        """
        final, ending = final_message(parts, self._client)
        self._scored = self._trained = None
        return self._write(final, "finished", ending)

    def cut_off(self, status: Status) -> reporting.Results | None:
        """Write the last model that arrived, if any, after an interrupted run.

        A file that cannot be written is only logged, because another error ended the
        run.

        Returns
        -------
        Results or None
            What was written; None if nothing was.
        """
        try:
            last = self._last()
            return None if last is None else self._write(last, status, None)
        except GGEURError as error:
            logger.warning("the last model could not be written: %s", error)
            return None
        finally:
            self._scored = self._trained = None

    def ended_by(self, error: BaseException, watch: Watch) -> str:
        """Write the last model after an error that ends the run, as `cut_off` does.

        Returns
        -------
        str
            If the server's operator ended the run, what this client has of it: no error
            then. "" otherwise.
        """
        is_told = isinstance(error, HubClosed) and error.reason == STOPPED
        stopped = is_told or isinstance(error, KeyboardInterrupt)
        last = self.cut_off("interrupted" if stopped else "failed")
        if not is_told:
            return ""
        watch.close("interrupted", STOPPED)
        where = f"the last model is in {self._folder}" if last else "no model had come"
        return f"client {self._held.number}: {STOPPED}; {where}"

    def _last(self) -> Broadcast | None:
        """The newest of the models that the server sent for scoring or training."""
        client, scored, number = self._client, None, 0
        if self._scored is not None:
            scored = Broadcast.from_bytes(self._scored, client.scored_schema)
            number = scored.round_number
        if self._trained is None or client.task.method.personal:
            return scored
        trained = Broadcast.from_bytes(self._trained, client.schema)
        before = trained.round_number - 1
        if before <= number:  # after no round it is the random start
            return scored
        params = models.fold(client.model, trained.params, client.space)
        if client.settings.mix is not None:
            params = client.settings.mix.mixed(client.model, params)
        return Broadcast(
            before, models.recast(client.model, params, client.scored_model)
        )

    def _write(
        self, broadcast: Broadcast, status: Status, ending: Ending | None
    ) -> reporting.Results:
        client, held, begun = self._client, self._held, self._begun
        about = begun.class_names, begun.encoder
        shared, head = self._evaluation.shared_model(broadcast), None
        if shared is not None:
            head = models.head_bytes(shared, *about)
        params, own = client.personal, []
        keeps = params is not None or self._settings.plan.leaves_own(client.task.method)
        if params is None:
            params = self._evaluation.eval_params(broadcast)
        if keeps:
            common = None if shared is None else shared.state_dict()
            tensors = models.own_tensors(client.scored_model, params, common)
            own = [
                (
                    held.number,
                    models.own_bytes(tensors, held.number, held.domain, head, *about),
                )
            ]
        model = client.scored_model.at(params)
        results = replace(
            begun,
            status=status,
            final=self._final(model, head, "clients" if keeps else "global", ending),
            notes=[*begun.notes, *_notes_on(shared, client, begun.class_names)],
            shared=_shared(ending),
        )
        reporting.write_left(self._folder, results, head, own)
        return results

    def _final(
        self, model: models.Model, head: bytes | None, scored, ending: Ending | None
    ) -> reporting.Final:
        """The client's score of the final model on its own test rows."""
        test = self._held.test
        accuracy = None
        if len(test):
            with torch.inference_mode():
                predicted = model.in_chunks(model, test.features).argmax(dim=1).cpu()
            accuracy = int((predicted == test.labels).sum()) / len(test)
        by_domain = {self._held.domain: accuracy}
        trains = self._client.settings.demands.trains
        return replace(
            self._begun.final,
            head=ending.head if ending else "trained" if trains else "closed_form",
            calibrated_by=ending.calibrated_by if ending else None,
            accuracy=by_domain,
            avg=accuracy,
            std=reporting.average(by_domain)[1],
            bytes_up=self.up,
            bytes_down=self.down,
            scored=scored,
            head_sha256=None if head is None else hashlib.sha256(head).hexdigest(),
            client_accuracy=(
                None if accuracy is None else {str(self._held.number): accuracy}
            ),
        )


class SiteMemory:
    """What a site was asked in its present run, for its next process.

    Parameters
    ----------
    folder : path
        It must exist.
    reads : bool
        False begins another run: what the folder holds counts no more. It stays there
        until `forget` is called.

    Attributes
    ----------
    run : dict from str to value
        Facts of the run. Its name ``run`` is "" before the first run. ``states_at`` is
        the checkpoint beside which the last process of this run kept the states of its
        method; "" if there was none.
    asked : list of (RequestKind, parts)
        The requests that a new process must answer again; see `ClientHandler.resume`.
    refused : set of int
        The positions in `asked` of requests that were refused. They may have left
        something, but they take no other's place.

    Raises
    ------
    ConfigError
        A file in the folder cannot be used; the error names it.
    """

    def __init__(self, folder: Path, reads: bool = True):
        self._folder, self._path = folder, folder / "run.json"
        self.run: dict[str, Any] = {"run": "", "folder": "", "up": 0, "down": 0}
        self.run["states_at"] = ""
        if reads and self._path.exists():
            with _needed(self._path):
                said = json.loads(read_regular(self._path))
                if not {"run", "folder", "up", "down"} <= said.keys():
                    raise ValueError
                self.run.update(said)
        self.asked = self._read("[0-9]*") if reads else []
        self.refused: set[int] = set()

    def save(self, **facts: Any) -> None:
        """Change facts of the run."""
        self.run = {**self.run, **facts}
        write_atomically(self._path, json.dumps(self.run), mode=0o600)

    @contextmanager
    def keep(
        self, kind: RequestKind, parts: Sequence[bytes], even_last: bool = True
    ) -> Iterator[None]:
        """Keep a request that is answered or refused in this context.

        Of a kind that clients need not remember, only the last request is kept; with
        `even_last` False, none is.
        """
        asked, position = (kind, tuple(parts)), len(self.asked)
        taken = [one for at, one in enumerate(self.asked) if at not in self.refused]
        is_first = sum(one is kind for one, _ in taken) < kind.remembered
        is_new = asked not in taken
        if is_new and (is_first or even_last):
            name = f"{position:06d}" if is_first else f"last_{kind.message}"
            data = packed([Envelope(kind.message, 0, asked[1])], UNLIMITED)
            write_atomically(self._folder / f"{name}.request", data, mode=0o600)
        if is_new and is_first:
            self.asked.append(asked)
        try:
            yield
        except GGEURError:
            if is_new and is_first:
                self.refused.add(position)
            raise

    def last(self) -> list[tuple[RequestKind, tuple[bytes, ...]]]:
        """The last requests of the kinds that clients need not remember."""
        return self._read("last_*")

    def _read(self, pattern: str) -> list[tuple[RequestKind, tuple[bytes, ...]]]:
        requests = []
        for path in sorted(self._folder.glob(f"{pattern}.request")):
            with _needed(path):
                (one,) = unpacked(read_regular(path), UNLIMITED, "this site")
                requests.append((question(one), one.parts))
        return requests

    def forget(self) -> None:
        """Forget all requests, and where the states of the method are."""
        self.asked, self.refused = [], set()
        for path in self._folder.glob("*.request"):
            path.unlink()
        self.save(states_at="")


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
        private_folder(self._place)
        what = f"the site's folder '{self._folder}'"
        with (
            _private_files(),
            locked(self._place / "lock", what, unusable),
            logging_to(self._folder / LOG_FILE),
        ):
            use_threads(self._cfg)
            self._memory, self._site = SiteMemory(self._place), Site(self._cfg)
            if [one.kind for one in asked] == [JOIN]:
                return [self._join(goes_on=bool(asked[0].state))]
            return self._answers(asked)

    def _join(self, goes_on: bool) -> Envelope:
        """Answer the message that asks the site to join."""
        number, memory = self._site.number, self._memory
        if memory.run["run"] != self._run:
            memory.forget()
            if not goes_on:  # no state of an earlier run may reach this one
                ClientStore(self._state, number).save({})
            own = (
                f"run_{self._run}"
                if (self._folder / reporting.RESULTS_FILE).exists()
                else ""
            )
            memory.save(run=self._run, folder=own, up=0, down=0)
            logger.info("client %d joins the run %s", number, self._run)
        return self._site.join(transport_settings(self._cfg).security.token().encode())

    @property
    def _state(self) -> Path:
        """Where the state of the run's method is kept."""
        return self._place / "state"

    def _answers(self, asked: Sequence[Envelope]) -> list[Envelope]:
        memory = self._memory
        if memory.run["run"] != self._run:
            problem = "this site has not joined this run"
            raise MessageError(problem, field="run", sender="the server")
        handler = self._site.handler(str(self._state))
        number = handler.client.number
        states = ClientStore(self._state, number).load()
        memory.refused = handler.resume(memory.asked, states)
        own = self._folder / memory.run["folder"]
        own.mkdir(exist_ok=True)
        leaves = self._site.leaves(own, self._engine, handler)
        leaves.up, leaves.down = memory.run["up"], memory.run["down"]
        for kind, parts in [*memory.asked, *memory.last()]:
            leaves.note_model(kind, parts)
        answers = []
        for one in asked:
            if one.kind == FAILED:
                reason = reason_of(one.parts)
                logger.warning("client %d: the server says: %s", number, reason)
                leaves.cut_off("failed")
            elif one.kind == FINISH:
                leaves.end(one.parts)
                memory.forget()
                logger.info("client %d: the run is finished", number)
            else:
                kind = question(one)
                with memory.keep(kind, one.parts):
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
        if key.in_site_folder and (value := get_key(own.ggeur, key.name)):
            put_key(own.ggeur, key.name, str(folder / value))
    own.freeze()
    return own


def _needed(path: Path) -> AbstractContextManager[None]:
    """A context in which a file of a site's memory must be good."""
    return refusing(
        f"'{path}' cannot be used (it says what this site was asked; if that run is "
        "over: ggeur join ... --new-run, or with Flower delete the file)",
        "it is not a file of this program",
    )


def _begun(
    engine: str, cfg, held: ClientData, data: workers.Described
) -> reporting.Results:
    """The results that a site knows before the run."""
    parts, noisy = (held.train, held.test, held.val), demands_of(cfg).noisy
    # With noise, exact numbers of rows stay out of results.
    rows = [None if noisy else len(part) for part in parts]
    return reporting.Results.begun(
        engine=f"{engine}, a client",
        config=plain_config(cfg),
        seed=cfg.seed,
        domains=[held.domain],
        unseen_domains=[],
        privacy=privacy_of(cfg, engine),
        clients=[reporting.ClientInfo(held.number, held.domain, *rows)],
        **workers.known_of_rows(cfg, data),
    )


def _shared(ending: Ending | None) -> reporting.SharedScores | None:
    if ending is None or ending.accuracy is None:
        return None
    accuracy = dict(ending.accuracy)
    return reporting.SharedScores(accuracy, *reporting.average({**accuracy}))


def _notes_on(
    head: models.Model | None, client: Client, class_names: Sequence[str]
) -> list[str]:
    """What the exchanges of the run note on the site's head."""
    due = due_exchanges(client.settings.demands)
    return list(filter(None, (part.note_on_head(head, class_names) for part in due)))
