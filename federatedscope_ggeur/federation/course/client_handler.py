"""A client's side of the conversation: what it answers to each kind of request."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import Client
from federatedscope_ggeur.federation.course.client_store import ClientStore
from federatedscope_ggeur.federation.messages import (
    Broadcast,
    Geometry,
    InitBroadcast,
    MessageSchema,
    Prototypes,
)

KINDS = ("statistics", "prepare", "share", "train", "score", "calibrate")


class GeometryCache:
    """The last geometry decoded, for all clients of a process that get the same."""

    def __init__(self):
        self._data, self._geometry = b"", None

    def decode(self, data: bytes, schema: MessageSchema) -> Geometry:
        if self._geometry is None or data != self._data:
            self._geometry = Geometry.from_bytes(data, schema)
            self._data = data
        return self._geometry

    def clear(self) -> None:
        self._data, self._geometry = b"", None


class ClientHandler:
    """Answers for one client.

    Parameters
    ----------
    client : Client
    test : Embeddings
        The client's own test rows.
    cache : GeometryCache
        Shared by the clients of a process.
    store : ClientStore, optional
        Where the method's state on this client is kept over restarts.
    answers : collection of str
        Kinds of `Request` that the client's own settings have it answer.
    """

    def __init__(
        self,
        client: Client,
        test: Embeddings,
        cache: GeometryCache,
        store: ClientStore | None = None,
        answers: Collection[str] = KINDS,
    ):
        self.client, self._schema, self._test = client, client.schema, test
        self._cache, self._store = cache, store
        self._answers, self._begun = answers, False
        self._calibrated = b""

    def answer(self, kind: str, parts: Sequence[bytes]) -> tuple[bytes, ...]:
        """The answer to a `Request` of this kind; empty where none is due.

        Raises
        ------
        MessageError
            The request is of an unknown kind, or its parts cannot be used.
        GGEURError
            Training diverged.
        """
        answers = {
            "statistics": self._statistics,
            "prepare": self._prepare,
            "share": self._share,
            "train": self._train,
            "score": self._score,
            "calibrate": self._calibrate,
        }
        if kind not in answers:
            raise MessageError(
                f"unknown request {kind!r:.80}", field="kind", sender="the server"
            )
        if kind not in self._answers:
            raise MessageError(
                f"{kind!r} is nothing that this client's settings have it answer "
                "(ggeur.steps, ggeur.closed_form, ggeur.calibrate)",
                field="kind",
                sender="the server",
            )
        counts = {"statistics": 0, "prepare": 2}
        if len(parts) != counts.get(kind, 1):
            raise MessageError(
                f"{kind} with {len(parts)} parts", field="parts", sender="the server"
            )
        if kind != "prepare":
            self._cache.clear()
        if kind in ("train", "score") and not self._begun:
            # The server's checkpoint is this run's by now: what an earlier run left
            # here must go, even if this client is not drawn for long.
            self._begun = True
            self._keep_state()
        return answers[kind](*parts)

    def _keep_state(self) -> None:
        if self._store is not None:
            self._store.save(self.client.states)

    def _statistics(self) -> tuple[bytes, ...]:
        return (self.client.statistics().to_bytes(),)

    def _prepare(self, geometry: bytes, prototypes: bytes) -> tuple[bytes, ...]:
        ready = self.client.prepare(
            self._cache.decode(geometry, self._schema) if geometry else None,
            Prototypes.from_bytes(prototypes, self._schema) if prototypes else None,
        )
        return (ready.to_bytes(),)

    def _share(self, shared: bytes) -> tuple[bytes, ...]:
        self.client.receive(InitBroadcast.from_bytes(shared, self._schema))
        return ()

    def _train(self, broadcast: bytes) -> tuple[bytes, ...]:
        update = self.client.train(Broadcast.from_bytes(broadcast, self._schema))
        self._keep_state()
        return (update.to_bytes(),)

    def _score(self, broadcast: bytes) -> tuple[bytes, ...]:
        weights = Broadcast.from_bytes(broadcast, self._schema)
        test = self._test
        return (self.client.score(weights, test.features, test.labels).to_bytes(),)

    def _calibrate(self, broadcast: bytes) -> tuple[bytes, ...]:
        # Hidden layers of the server's choosing, one after the other, could tell rows
        # apart. A server that was restarted asks again at the same weights.
        if self._calibrated not in (b"", broadcast):
            raise MessageError(
                "a second calibration, at other weights",
                field="kind",
                sender="the server",
            )
        self._calibrated = broadcast
        weights = Broadcast.from_bytes(broadcast, self._schema)
        return (self.client.last_input_statistics(weights).to_bytes(),)
