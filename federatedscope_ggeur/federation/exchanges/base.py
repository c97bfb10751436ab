"""What an exchange is: one question that the server asks of its clients.

A room below `exchanges` holds all of one question: the messages with their limits, what
a client answers, what the server makes of it, when it is due, what is recorded and what
a checkpoint keeps. A room may import the rooms that stand before it in this order:
statistics, secure_sums, space, closed_form, augmentation, training, evaluation,
calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Union

import numpy as np
from torch import Tensor

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.client import Client
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.wire import limits, shape_problem
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.methods import TensorSpec
from federatedscope_ggeur.settings import Registry, check_class, is_of_plugin

if TYPE_CHECKING:
    from federatedscope_ggeur.federation.course.coordinator import Coordinator

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RequestKind:
    """One kind of request.

    Attributes
    ----------
    name : str
        What it is called in texts for a person.
    message, answer_message : str
        The types of the messages down and up in FederatedScope (FS); FS's own where it
        has some. No answer is due where the second is "".
    deadline : str
        Which of the settings ``deadline.*`` says how long answers are waited for.
    parts : tuple of payload classes
        What goes down.
    respond : callable (ClientSide, *payloads) -> payload or None
        The client's answer. A part that is empty is None.
    answer : payload class
    validate : callable (Exchange, Request, answer)
        Raises `MessageError` unless the server can use the answer.
    schema : callable (Exchange) -> MessageSchema
        What the answer is decoded against.
    bound : callable (Declared, Exchange, answer)
        As `validate`, by what the client declared when it joined.
    largest : callable (Exchange) -> int or None
        Bytes of the longest answer; None where nothing bounds it.
    part_schema : callable (Client) -> MessageSchema
        What the parts are decoded against.
    patient : bool
        A client whose connection is lost is waited for until the deadline, and asked
        again with the same bytes when it is back.
    optional_parts : bool
        Parts may be empty.
    shared_parts : bool
        The clients of a process get the same first part, which is decoded once.
    """

    name: str
    message: str
    deadline: str
    parts: tuple[Any, ...]
    respond: Callable[..., Any]
    answer_message: str = ""
    answer: Any = None
    validate: Callable[[Any, Request, Any], None] = lambda *_: None
    schema: Callable[[Any], MessageSchema] = field(default=lambda e: e.server.schema)
    bound: Callable[[Declared, Any, Any], None] = lambda *_: None
    largest: Callable[[Any], int | None] = lambda exchange: limits.PLAIN
    part_schema: Callable[[Client], MessageSchema] = field(default=lambda c: c.schema)
    patient: bool = False
    optional_parts: bool = False
    shared_parts: bool = False


@dataclass(frozen=True)
class Request:
    """Something to carry to clients.

    Attributes
    ----------
    kind : RequestKind
    round_number : int
    parts : mapping from client number to tuple of bytes
        What goes to whom, in client order. The same bytes often go to many.
    """

    kind: RequestKind
    round_number: int
    parts: Mapping[int, tuple[bytes, ...]]


@dataclass(frozen=True)
class Absence:
    """In place of an answer: why none came, and whether the client is still there."""

    reason: str
    connected: bool = False


Replies = dict[int, Union[tuple[bytes, ...], Absence]]
#: A part of the course: yields requests, is sent their replies, returns a T.
Requests = Generator[Request, Replies, T]


@dataclass(frozen=True)
class Spent:
    """Seconds, and bytes to and from the clients."""

    seconds: float = 0.0
    down: int = 0
    up: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.seconds + other.seconds, self.down + other.down, self.up + other.up
        )

    def __sub__(self, other: Spent) -> Spent:
        return Spent(
            self.seconds - other.seconds, self.down - other.down, self.up - other.up
        )


class ClientSide:
    """What one client answers to one question; made when it is first asked.

    Parameters
    ----------
    client : Client
    rows : mapping from split to Embeddings
        The client's own rows that it scores a head on.
    """

    def __init__(self, client: Client, rows: Mapping[str, Embeddings]):
        self.client, self.rows = client, rows


class Exchange:
    """The server's side of one question, over one run.

    Parameters
    ----------
    course : Coordinator
        Leads the run: it carries requests and knows who is there.

    Attributes
    ----------
    name : str
        As it is registered.
    KINDS : tuple of RequestKind
        What it asks.
    CLIENT : subclass of ClientSide
        What answers.
    REVEALS : str
        What the answers tell of a client's rows, in a few words: the run's privacy
        line and `audit` say it. Secure sums refuse a plugin's exchange that leaves it
        empty.
    UNSCREENED : str
        What cannot be screened because of it, and what that means.
    apart : Spent
        The part of round 0 that a record of its own tells of.
    """

    name: str
    KINDS: ClassVar[tuple[RequestKind, ...]] = ()
    CLIENT: ClassVar[type[ClientSide]] = ClientSide
    REVEALS: ClassVar[str] = ""
    UNSCREENED: ClassVar[str] = ""
    SETTINGS: ClassVar[tuple] = ()

    def __init__(self, course: Coordinator):
        self.course, self.server = course, course.server
        self.apart = Spent()

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        """Whether the run asks this question at all."""
        return True

    @classmethod
    def answered(cls, demands: Demands) -> tuple[RequestKind, ...]:
        """The kinds that a client of these demands answers."""
        return cls.KINDS if cls.is_due(demands) else ()

    @classmethod
    def withheld_note(cls, counts: np.ndarray, threshold: int) -> str:
        """What the min-count threshold keeps back of what it asks for, if that is much.

        Parameters
        ----------
        counts : int array [K, C]
            Rows of each class that each client holds.
        """
        return ""

    def begin(self) -> Requests[None]:
        """Its part of round 0."""
        yield from ()

    def complete(self) -> Requests[None]:
        """A second part, once all exchanges have had their first."""
        yield from ()

    def on_statistics(self, upload: Any) -> None:
        """Note a client's upload of statistics, in client order; it is not kept."""

    def on_total(self, statistics: Any) -> None:
        """Note the statistics of all clients at once, as far as they may go down."""

    def catch_up(self, returned: list[int]) -> Requests[None]:
        """Ask or send what these clients may have missed; they are there again."""
        yield from ()

    def round(self, number: int) -> Requests[dict[str, Any]]:
        """Its part of a round; what it knows of the round's record, as `record`."""
        yield from ()
        return {}

    def record(self) -> dict[str, Any]:
        """The fields of the record of round 0 that it knows; of a plugin's exchange,
        plain values for ``exchanges.<name>`` in it."""
        return {}

    def kept(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of round 0, by names that `resume` understands."""
        return {}

    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on where an exchange was that `kept` these tensors."""

    def progress(self) -> dict[str, Any]:
        """What a checkpoint keeps of the rounds, as plain values."""
        return {}

    def resume_progress(self, values: Mapping[str, Any]) -> None:
        """Go on after rounds that left these values.

        Raises
        ------
        KeyError, DataError
            They are no such values.
        """


#: All exchanges, in the order in which they are asked.
EXCHANGES: Registry[type[Exchange]] = Registry("exchange", "plugins")
#: What `RequestKind.deadline` may be.
DEADLINES = ("round0", "train", "evaluate")


def register_exchange(name: str) -> Callable[[type[Exchange]], type[Exchange]]:
    """Decorator: register a class of `Exchange` as `name`.

    A plugin's exchange is asked after the package's own, in runs whose
    ``ggeur.plugins`` name its module; a client answers it only where its own settings
    name it, too. An installed entry point alone does not suffice.

    Raises
    ------
    TypeError
        It is no `Exchange`, or a request has a deadline that does not exist.
    ValueError
        Its name, or that of a request or a message, is taken.
    """

    def register(part: type[Exchange]) -> type[Exchange]:
        check_class(f"the exchange '{name}'", part, Exchange)
        others = [k for other in EXCHANGES if other != name for k in _kinds_of(other)]
        taken = {text for kind in others for text in _texts_of(kind)}
        for kind in part.KINDS:
            if kind.deadline not in DEADLINES:
                raise TypeError(
                    f"the request '{kind.name}' of the exchange '{name}' has the "
                    f"deadline {kind.deadline!r}; known: {', '.join(DEADLINES)}"
                )
            for text in _texts_of(kind) & taken:
                raise ValueError(
                    f"the exchange '{name}' has a request or message called '{text}', "
                    "which another exchange has"
                )
        return EXCHANGES.add(name, part)

    return register


def _kinds_of(name: str) -> tuple[RequestKind, ...]:
    return EXCHANGES[name].KINDS


def _texts_of(kind: RequestKind) -> set[str]:
    """What no other exchange's request may be called."""
    return {kind.name, kind.message, kind.answer_message} - {""}


def due_exchanges(demands: Demands) -> list[type[Exchange]]:
    """The exchanges of a run: those of the package, and those of its own plugins."""
    own = [part for part in EXCHANGES.values() if not is_of_plugin(part)]
    due = [part for part in own if part.is_due(demands)]
    return [*due, *plugin_exchanges(demands)]


def plugin_exchanges(demands: Demands) -> list[type[Exchange]]:
    """The exchanges that a run asks beside the package's own."""
    return [
        part
        for part in EXCHANGES.values()
        if is_of_plugin(part) and _is_named(part, demands) and part.is_due(demands)
    ]


def _is_named(part: type[Exchange], demands: Demands) -> bool:
    """Whether the run names the module, or the package, that an exchange is of."""
    module = f"{part.__module__}."
    return any(module.startswith(f"{name}.") for name in demands.plugins)


def answered_kinds(demands: Demands) -> dict[RequestKind, type[Exchange]]:
    """What a client of these demands answers, and which exchange it belongs to."""
    return {
        kind: part
        for part in EXCHANGES.values()
        if not is_of_plugin(part) or _is_named(part, demands)
        for kind in part.answered(demands)
    }


def all_kinds() -> list[RequestKind]:
    """Every kind of request that there is."""
    return [kind for part in EXCHANGES.values() for kind in part.KINDS]


# What validations have in common.


def refusal(client: int, field: str, problem: str) -> MessageError:
    """The error of an answer that cannot be used."""
    return MessageError(problem, field=field, sender=f"client {client}")


def require_known(client: int, known: Iterable[int], repeated: bool = False) -> None:
    """Refuse an answer of a stranger, or a second one."""
    if client not in known or repeated:
        problem = "sent twice" if repeated else "not a client of this run"
        raise refusal(client, "client", problem)


def require_tensors(
    tensors: Mapping[str, Tensor],
    specs: Mapping[str, TensorSpec],
    field: str,
    client: int,
) -> None:
    """Refuse other tensors than those that the method sends."""
    if tensors.keys() != specs.keys():
        raise refusal(
            client, field, f"the method sends {sorted(specs)}, got {sorted(tensors)}"
        )
    for name, spec in specs.items():
        problem = shape_problem(tensors[name], spec.shape)
        if tensors[name].dtype != spec.dtype:
            problem = f"expected {spec.dtype}, got {tensors[name].dtype}"
        if problem:
            raise refusal(client, f"{field}.{name}", problem)
