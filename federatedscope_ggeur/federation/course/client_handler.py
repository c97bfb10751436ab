"""A client's side of the course: what it answers to each kind of request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from federatedscope_ggeur.data import ClientData, Embeddings
from federatedscope_ggeur.errors import MessageError, setting
from federatedscope_ggeur.federation.client import Client
from federatedscope_ggeur.federation.course.client_store import ClientStore
from federatedscope_ggeur.federation.course.requests import (
    KINDS,
    LEAVE_ONE_OUT,
    PREPARE,
    TRAIN,
    RequestKind,
)
from federatedscope_ggeur.federation.masking.participant import Participant
from federatedscope_ggeur.federation.memory import MemoryBudget
from federatedscope_ggeur.federation.messages import (
    Broadcast,
    ClientUpdate,
    Geometry,
    HitCounts,
    LeaveOneOut,
    MessageSchema,
    ScoreReport,
    StatisticsUpload,
)
from federatedscope_ggeur.federation.settings import ClientSettings

#: The settings that say what a client answers.
_ASKED_BY = ("steps", "closed_form", "space", "calibrate", "secure_sums")


class GeometryCache:
    """The last geometry decoded, for all clients of a process that get the same; or
    what rows are left out of."""

    def __init__(self):
        self._data, self._payload = b"", None

    def decode(self, payload: Any, data: bytes, schema: MessageSchema) -> Any:
        if not isinstance(self._payload, payload) or data != self._data:
            self._payload = payload.from_bytes(data, schema)
            self._data = data
        return self._payload

    def clear(self) -> None:
        self._data, self._payload = b"", None


#: What a `GeometryCache` keeps, and the kinds of requests that bring it.
_SHARED = (Geometry, LeaveOneOut)
_SHARED_KINDS = (PREPARE, LEAVE_ONE_OUT)


class ClientHandler:
    """Answers for one client.

    Parameters
    ----------
    client : Client
    rows : mapping from split to Embeddings
        The client's own rows that it scores a head on.
    cache : GeometryCache
        Shared by the clients of a process.
    store : ClientStore, optional
        Where the method's state on this client is kept over restarts.
    answers : collection of RequestKind
        What the client's own settings have it answer.
    """

    def __init__(
        self,
        client: Client,
        rows: Mapping[str, Embeddings],
        cache: GeometryCache,
        store: ClientStore | None = None,
        answers: Collection[RequestKind] = KINDS,
    ):
        self.client, self._rows = client, dict(rows)
        self._cache, self._store, self._answers = cache, store, answers
        self._begun = False
        self._calibrated: Broadcast | None = None
        self._evaluated: Broadcast | None = None
        self._left_out: LeaveOneOut | None = None
        sums, rows_held = client.settings.sums, (client.features, client.labels)
        self._participant: Participant | None = None
        if sums is not None:
            self._participant = Participant(client.number, *rows_held, sums)

    @property
    def participant(self) -> Participant:
        """What answers for the client in secure sums, where its settings have any."""
        assert self._participant is not None, "the settings ask for no secure sums"
        return self._participant

    @participant.setter
    def participant(self, participant: Participant) -> None:
        self._participant = participant

    @classmethod
    def of(
        cls,
        held: ClientData,
        settings: ClientSettings,
        memory: MemoryBudget,
        cache: GeometryCache,
        answers: Collection[RequestKind],
        save_to: str,
        asked: bool = True,
    ) -> ClientHandler:
        """Of a client that holds so much; states go to a checkpoint at `save_to`, see
        `ClientStore`."""
        number, train = held.number, held.train
        client = Client(
            number, held.domain, train.features, train.labels, settings, memory
        )
        rows = {split: getattr(held, split) for split in settings.scored}
        store = ClientStore(save_to, number, asked) if save_to else None
        return cls(client, rows, cache, store, answers)

    def answer(self, kind: RequestKind, parts: Sequence[bytes]) -> tuple[bytes, ...]:
        """The answer to a `Request` of this kind; empty where none is due.

        Raises
        ------
        MessageError
            The client's settings have it answer no such request, or the parts cannot
            be used.
        GGEURError
            Training diverged.
        """
        if kind not in self._answers:
            raise _refusal(
                "kind",
                f"{kind.name!r} is nothing that this client's settings have it answer "
                f"({', '.join(map(setting, _ASKED_BY))})",
            )
        if len(parts) != len(kind.parts):
            raise _refusal("parts", f"{kind.name} with {len(parts)} parts")
        if kind not in _SHARED_KINDS:
            self._cache.clear()
        if Broadcast in kind.parts and not self._begun:
            # The server's checkpoint is this run's by now: what an earlier run left
            # here must go, even if this client is not drawn for long.
            self._begun = True
            self._keep_state()
        payloads = [
            self._decode(kind, part, data) for part, data in zip(kind.parts, parts)
        ]
        answer = kind.respond(self, *payloads)
        return () if answer is None else (answer.to_bytes(),)

    def train(self, broadcast: Broadcast) -> ClientUpdate:
        """One round of training; the method's state is kept."""
        update = self.client.train(broadcast)
        self._keep_state()
        return update

    def evaluate(self, broadcast: Broadcast) -> ScoreReport:
        """Scores on the client's own rows; of one head only where nothing is trained.

        Losses of heads of the server's choosing, one after the other, could tell rows.
        """
        if TRAIN not in self._answers:
            before = self._evaluated or broadcast
            if broadcast.round_number or not before.params.equal(broadcast.params):
                raise _refusal("kind", "a second head to score, and there is but one")
            self._evaluated = broadcast
        return self.client.score(broadcast, self._rows)

    def leave_one_out(self, message: LeaveOneOut) -> HitCounts:
        """Hit counts of the candidates for a head in closed form, for one set of
        components only.

        Components of the server's choosing, one set after the other, could tell rows
        apart.
        """
        if self._left_out is not None and not self._left_out.equals(message):
            raise _refusal("kind", "hit counts a second time, for other components")
        self._left_out = message
        return self.client.hit_counts(message, self._rows.get("val"))

    def calibrate(self, broadcast: Broadcast) -> StatisticsUpload:
        """Statistics of what the last layer takes in, at one set of weights only.

        Hidden layers of the server's choosing, one after the other, could tell rows
        apart. A server that was restarted asks again at the same weights.
        """
        before = self._calibrated
        if before is not None and not before.params.equal(broadcast.params):
            raise _refusal("kind", "a second calibration, at other weights")
        self._calibrated = broadcast
        return self.client.last_input_statistics(broadcast)

    def _decode(self, kind: RequestKind, payload: Any, data: bytes) -> Any:
        if not data and kind is PREPARE:
            return None
        if payload in _SHARED:
            return self._cache.decode(payload, data, self.client.schema)
        return payload.from_bytes(data, kind.part_schema(self.client))

    def _keep_state(self) -> None:
        if self._store is not None:
            self._store.save(self.client.states)


def _refusal(field: str, problem: str) -> MessageError:
    return MessageError(problem, field=field, sender="the server")
