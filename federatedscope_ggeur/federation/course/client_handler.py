"""The client's side of a run: passes each request to the exchange that answers it.

Keeps the method's state of a client in a file beside the server's checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from federatedscope_ggeur.data import ClientData, ClientRange, Embeddings
from federatedscope_ggeur.errors import ConfigError, GGEURError, MessageError, setting
from federatedscope_ggeur.extras import settings_for_totals
from federatedscope_ggeur.files import read_regular, write_atomically
from federatedscope_ggeur.printable import get_logger

from .. import wire
from ..client import Client
from ..demands import Demands
from ..exchanges.base import ClientSide, Exchange, RequestKind, answered_kinds
from ..exchanges.training.messages import Broadcast
from ..memory import MemoryBudget
from ..settings import RoleSettings
from ..wire.schema import MessageSchema
from .checkpoint import client_path, grouped, make_folder_of, refusal, unwritable

logger = get_logger(__name__)


class ClientStore:
    """The file in which a client keeps its method's state, by round.

    Parameters
    ----------
    checkpoint : path
        The server's checkpoint. The file stands in ``<checkpoint>.clients/``.
    number : int
    asked : bool
        Whether the user named the place. If not, and the file cannot be written, one
        warning is logged and the run goes on.

    Raises
    ------
    ConfigError
        `save` cannot write the file; the earlier file stays complete. Or `load` finds
        that the file is missing, unreadable, or of another client.
    """

    def __init__(self, checkpoint: str | Path, number: int, asked: bool = True):
        self.path, self._number = client_path(checkpoint, number), number
        self._asked, self._failed = asked, False

    def save(self, states: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Write `states` completely or not at all.

        Without states the file is removed, so that no later run reads the state of an
        earlier run.
        """
        if self._failed:
            return
        try:
            if not any(states.values()):
                self.path.unlink(missing_ok=True)
                return
            tensors: dict[str, Tensor] = {}
            for number, state in states.items():
                tensors.update(wire.under(f"state.{number}", state))
            rounds = [str(number) for number in sorted(states)]
            numbers = {"client": self._number, "rounds": rounds}
            make_folder_of(self.path.parent)
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            numbers = wire.sealed(numbers, tensors)
            data = wire.pack("client state", numbers, tensors)
            write_atomically(self.path, data, mode=0o600)
        except (OSError, ConfigError) as error:
            if self._asked:
                raise unwritable(error) from error
            logger.warning(
                "the state of client %d can no longer be saved: %s", self._number, error
            )
            self._failed = True

    def load(self, must_exist: bool = False) -> dict[int, dict[str, Tensor]]:
        """Read the saved states; without a file there are none.

        `must_exist` says that the client has trained before. A missing file is then an
        error.
        """
        if not self.path.exists():
            if not must_exist:
                return {}
            raise ConfigError(
                f"{setting('restore_from')}: the file '{self.path}' with the state "
                f"of client {self._number} is missing; put it back, or begin the run "
                "anew"
            )
        try:
            message = wire.unpack(
                read_regular(self.path), "client state", f"client {self._number}"
            )
            message.check_content()
            message.client()
            by_round = grouped(message.tensors_under("state"))
            states = {int(n): by_round.pop(int(n), {}) for n in message.texts("rounds")}
            if by_round:
                raise ValueError(
                    f"it has tensors of rounds {list(by_round)}, but does not list "
                    "these rounds"
                )
        except (OSError, MessageError, ValueError, KeyError) as error:
            raise refusal(self.path, str(error)) from error
        return states


S = TypeVar("S", bound=ClientSide)

#: The settings that decide what a client answers.
_ASKED_BY = (
    *("steps", "closed_form", "space", "calibrate"),
    *settings_for_totals(),
    "plugins",
)


class DecodedParts:
    """The decoded parts of the last request, shared by the clients of a process."""

    def __init__(self) -> None:
        self._kind: RequestKind | None = None
        self._known: dict[int, tuple[bytes, Any]] = {}
        self._answered: tuple[Demands, Mapping] | None = None

    def answered(self, demands: Demands) -> Mapping[RequestKind, type[Exchange]]:
        """The request kinds that clients answer, each with its exchange.

        The result of `answered_kinds` is kept for all clients of a process.
        """
        if self._answered is None or self._answered[0] is not demands:
            self._answered = demands, answered_kinds(demands)
        return self._answered[1]

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


class _Splits(Mapping[str, Embeddings]):
    """The splits of a client's rows on which this client scores heads."""

    __slots__ = ("_held", "_names")

    def __init__(self, held: ClientData | ClientRange, names: Sequence[str]):
        self._held, self._names = held, names

    def __getitem__(self, split: str) -> Embeddings:
        if split not in self._names:
            raise KeyError(split)
        return getattr(self._held, split)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class ClientHandler:
    """Answers the server's requests for one client.

    Parameters
    ----------
    client : Client
    rows : mapping from split to Embeddings
        The client's own rows, on which it scores heads.
    cache : DecodedParts
        The decoded parts that the clients of a process share.
    store : ClientStore, optional
        Keeps the method's state of this client, so that it survives a restart.
    """

    __slots__ = ("_answers", "_begun", "_cache", "_sides", "_store", "client", "rows")

    def __init__(
        self,
        client: Client,
        rows: Mapping[str, Embeddings],
        cache: DecodedParts,
        store: ClientStore | None = None,
    ):
        self.client, self.rows = client, rows
        self._cache, self._store = cache, store
        self._answers = cache.answered(client.settings.demands)
        self._sides: tuple[ClientSide, ...] = ()
        self._begun = False
        if store is not None:
            client.on_state = self._keep_state

    @classmethod
    def of(
        cls,
        held: ClientData | ClientRange,
        settings: RoleSettings,
        scored: Sequence[str],
        memory: MemoryBudget,
        cache: DecodedParts,
        save_to: str,
        asked: bool = True,
    ) -> ClientHandler:
        """The handler of the client with the data `held`; it scores on splits `scored`.

        If `save_to` is not empty, the method's state of the client is kept beside the
        checkpoint at `save_to`; see `ClientStore`. `asked` is explained there, too.
        """
        client = Client(held, settings, memory)
        store = ClientStore(save_to, held.number, asked) if save_to else None
        return cls(client, _Splits(held, scored), cache, store)

    def side(self, kind: type[S]) -> S:
        """The client's side of an exchange.

        The side is kept once it holds anything of its own. Until then each call makes
        another one.
        """
        for side in self._sides:
            if type(side) is kind:
                return side
        side = kind(self.client, self.rows)
        self._keep(side)
        return side

    def _keep(self, side: ClientSide) -> None:
        # Without a __dict__ nobody knows what it holds.
        if getattr(side, "__dict__", True) and side not in self._sides:
            self._sides += (side,)

    def answer(self, kind: RequestKind, parts: Sequence[bytes]) -> tuple[bytes, ...]:
        """The answer to a request of this kind; empty if none is due.

        Raises
        ------
        MessageError
            The client's settings do not allow an answer, or the parts cannot be used.
        GGEURError
            Training diverged.
        """
        side, payloads = self._asked(kind, parts)
        try:
            answer = kind.respond(side, *payloads)
        finally:  # an answer that fails may leave something, too
            self._keep(side)
        return () if answer is None else (answer.to_bytes(),)

    def resume(
        self,
        asked: Iterable[tuple[RequestKind, Sequence[bytes]]],
        states: dict[int, dict[str, Tensor]],
    ) -> set[int]:
        """Become what an earlier process of this client was.

        Parameters
        ----------
        asked : iterable of (kind, parts)
            The requests that it answered, in order, of the kinds that are `remembered`.
        states : dict from round to dict from str to Tensor
            The states of the client's method that it kept in its `ClientStore`.

        Returns
        -------
        set of int
            The positions of the requests that were refused.
        """
        store, self._store = self._store, None
        refused = set()
        for position, (kind, parts) in enumerate(asked):
            try:
                self.answer(kind, parts)
            except GGEURError:  # it said so when it was asked
                refused.add(position)
        self._store, self.client.states = store, states
        return refused

    def _asked(
        self, kind: RequestKind, parts: Sequence[bytes]
    ) -> tuple[ClientSide, list[Any]]:
        """The side that answers a request, and the decoded parts."""
        if kind not in self._answers:
            raise _refusal(
                "kind",
                f"this client's settings do not allow it to answer {kind.name!r}; "
                "set the same on server and clients: "
                f"{', '.join(map(setting, _ASKED_BY))}",
            )
        if len(parts) != len(kind.parts):
            raise _refusal(
                "parts",
                f"a request {kind.name!r} with a wrong number of parts: {len(parts)}",
            )
        if not kind.shared_parts:
            self._cache.clear()
        if Broadcast in kind.parts and not self._begun:
            # The server's checkpoint belongs to this run by now. The state of an
            # earlier run is removed here: this client may not be drawn for long.
            self._begun = True
            self._keep_state()
        payloads = [self._decode(kind, i, data) for i, data in enumerate(parts)]
        return self.side(self._answers[kind].CLIENT), payloads

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


def answer_group(
    handlers: Sequence[ClientHandler],
    kind: RequestKind,
    parts: Sequence[Sequence[bytes]],
) -> list[Any] | None:
    """The payloads with which several clients answer at once, in their order.

    None if each of them must be asked by `ClientHandler.answer`.

    Raises
    ------
    MessageError, GGEURError
        The error of the first client that has one.
    """
    if kind.respond_group is None or not handlers:
        return None
    asked = [h._asked(kind, own) for h, own in zip(handlers, parts)]
    sides = [side for side, _ in asked]
    try:
        return kind.respond_group(sides, [payloads for _, payloads in asked])
    finally:
        for handler, side in zip(handlers, sides):
            handler._keep(side)


def _refusal(field: str, problem: str) -> MessageError:
    return MessageError(problem, field=field, sender="the server")
