"""A client's side of the course: passes each request to its exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from federatedscope_ggeur.data import ClientData, Embeddings
from federatedscope_ggeur.errors import MessageError, setting
from federatedscope_ggeur.federation.client import Client
from federatedscope_ggeur.federation.course.client_store import ClientStore
from federatedscope_ggeur.federation.exchanges.base import (
    ClientSide,
    RequestKind,
    answered_kinds,
)
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.federation.memory import MemoryBudget
from federatedscope_ggeur.federation.settings import RoleSettings
from federatedscope_ggeur.federation.wire.schema import MessageSchema

S = TypeVar("S", bound=ClientSide)

#: The settings that decide what a client answers.
_ASKED_BY = ("steps", "closed_form", "space", "calibrate", "secure_sums", "plugins")


class DecodedParts:
    """The parts of the last request that clients of a process share, decoded once."""

    def __init__(self) -> None:
        self._kind: RequestKind | None = None
        self._known: dict[int, tuple[bytes, Any]] = {}

    def decode(
        self, kind: RequestKind, position: int, data: bytes, schema: MessageSchema
    ) -> Any:
        if kind is not self._kind:
            self._kind, self._known = kind, {}
        known = self._known.get(position)
        if known is None or known[0] != data:
            known = data, kind.parts[position].from_bytes(data, schema)
            self._known[position] = known
        return known[1]

    def clear(self) -> None:
        self._kind, self._known = None, {}


class ClientHandler:
    """Answers requests for one client.

    Parameters
    ----------
    client : Client
    rows : mapping from split to Embeddings
        The client's own rows that it scores a head on.
    cache : DecodedParts
        Shared by the clients of a process.
    store : ClientStore, optional
        Keeps the method's state of this client over restarts.
    """

    def __init__(
        self,
        client: Client,
        rows: Mapping[str, Embeddings],
        cache: DecodedParts,
        store: ClientStore | None = None,
    ):
        self.client, self._rows = client, rows
        self._cache, self._store = cache, store
        self._answers = answered_kinds(client.settings.demands)
        self._sides: dict[type[ClientSide], ClientSide] = {}
        self._begun = False
        client.on_state = self._keep_state

    @classmethod
    def of(
        cls,
        held: ClientData,
        settings: RoleSettings,
        scored: Sequence[str],
        memory: MemoryBudget,
        cache: DecodedParts,
        save_to: str,
        asked: bool = True,
    ) -> ClientHandler:
        """The handler of the client with the data `held`. It scores heads on `scored`.

        The state of its method goes beside a checkpoint at `save_to`, see
        `ClientStore`.
        """
        number, train = held.number, held.train
        client = Client(
            number, held.domain, train.features, train.labels, settings, memory
        )
        rows = {split: getattr(held, split) for split in scored}
        store = ClientStore(save_to, number, asked) if save_to else None
        return cls(client, rows, cache, store)

    def side(self, kind: type[S]) -> S:
        """The client's side of an exchange, made when it is first asked for."""
        if kind not in self._sides:
            self._sides[kind] = kind(self.client, self._rows)
        found = self._sides[kind]
        assert isinstance(found, kind)
        return found

    def answer(self, kind: RequestKind, parts: Sequence[bytes]) -> tuple[bytes, ...]:
        """The answer to a request of this kind; empty if none is due.

        Raises
        ------
        MessageError
            The client's settings do not allow an answer, or the parts cannot be used.
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
        if not kind.shared_parts:
            self._cache.clear()
        if Broadcast in kind.parts and not self._begun:
            # The server's checkpoint belongs to this run by now. The state of an
            # earlier run is removed here: this client may not be drawn for long.
            self._begun = True
            self._keep_state()
        payloads = [
            self._decode(kind, position, data) for position, data in enumerate(parts)
        ]
        side = self.side(self._answers[kind].CLIENT)
        answer = kind.respond(side, *payloads)
        return () if answer is None else (answer.to_bytes(),)

    def _decode(self, kind: RequestKind, position: int, data: bytes) -> Any:
        if not data and kind.optional_parts:
            return None
        schema = kind.part_schema(self.client)
        if kind.shared_parts:
            return self._cache.decode(kind, position, data, schema)
        return kind.parts[position].from_bytes(data, schema)

    def _keep_state(self) -> None:
        if self._store is not None:
            self._store.save(self.client.states)


def _refusal(field: str, problem: str) -> MessageError:
    return MessageError(problem, field=field, sender="the server")
