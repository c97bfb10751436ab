"""Defines an exchange: one question that the server asks its clients.

Each folder or file of `exchanges` holds everything about one question. It has the
messages with their limits, the client's answer, and what the server makes of it. It
also has the settings, the records and the part of a checkpoint. It may import only
those before it in this order:
statistics, closed_form, space, augmentation, training, evaluation, personal,
calibration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, Union

import numpy as np
from torch import Tensor

from federatedscope_ggeur.data import Embeddings, Expected
from federatedscope_ggeur.errors import GGEURError, MessageError, of_client, setting
from federatedscope_ggeur.extras import load_extras
from federatedscope_ggeur.methods.contexts import Specs, names_problem
from federatedscope_ggeur.settings import (
    Objections,
    Registry,
    Section,
    check_class,
    check_section,
    flatten,
    is_of_plugin,
)

from ..client import Client
from ..demands import Demands
from ..wire import schema as limits
from ..wire.schema import Declared, MessageSchema

if TYPE_CHECKING:
    from federatedscope_ggeur.models import Model
    from federatedscope_ggeur.reporting import Privacy

    from ..course.coordinator import Coordinator
    from ..settings import RoleSettings

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RequestKind:
    """One kind of request.

    Attributes
    ----------
    name : str
        The name of the request in messages for people.
    message, answer_message : str
        The message types of request and answer. FederatedScope's types are used where
        they exist. If `answer_message` is "", no answer is due.
    deadline : str
        The setting ``deadline.<name>`` that limits how long the server waits.
    parts : tuple of payload classes
        The payloads that the request carries.
    respond : callable (ClientSide, *payloads) -> payload or None
        Makes the client's answer. An empty payload is passed as None.
    answer : payload class
    validate : callable (Exchange, Request, answer)
        Raises `MessageError` if the answer is unusable.
    schema : callable (Exchange) -> MessageSchema
        The schema of the answer.
    bound : callable (Declared, Exchange, answer)
        Raises `MessageError` if the answer contradicts what the client declared when it
        joined.
    largest : callable (Exchange) -> int or None
        The size in bytes of the longest answer allowed; None without a limit.
    part_schema : callable (Client) -> MessageSchema
        The schema of the parts.
    doing : str
        What clients do, if that may take long: for people who watch the run.
    patient : bool
        Whether the server waits until the deadline for a client that lost its
        connection, and asks it again with the same bytes.
    needs_all : bool
        Whether all other answers are useless if one client does not answer. The wait
        for the others then ends as soon as a client stops for good.
    optional_parts : bool
        Whether parts may be empty.
    shared_parts : bool
        Whether many clients get the same parts. A process decodes them once.
    respond_group : callable (client sides, parts of each) -> list of answers, or None
        Makes the answers of several clients of one process at once; each is what
        `respond` would make. It returns None if each client must answer by itself.
    remembered : int
        So many requests of a run, the first that it does not refuse, a client remembers
        in its process alone. A new process of this client must answer them again; see
        `ClientHandler.resume`. A client must not go by the round: a server that lies
        may name any.
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
    doing: str = ""
    patient: bool = False
    needs_all: bool = False
    optional_parts: bool = False
    shared_parts: bool = False
    respond_group: Callable[[Sequence[Any], Sequence[Sequence[Any]]], Any] | None = None
    remembered: int = sys.maxsize


@dataclass(frozen=True)
class Request:
    """A request to clients.

    Attributes
    ----------
    kind : RequestKind
    round_number : int
    parts : mapping from client number to tuple of bytes
        The payloads for each client, in client order. Many clients often get the same
        bytes.
    """

    kind: RequestKind
    round_number: int
    parts: Mapping[int, tuple[bytes, ...]]


@dataclass(frozen=True)
class Absence:
    """A missing answer, with the reason, and whether the client is still connected."""

    reason: str
    connected: bool = False


class Carried(NamedTuple):
    """An answer that never left its process. No bytes were made of it.

    Attributes
    ----------
    answer : payload
    size : int
        The bytes that a message with this answer has.
    """

    answer: Any
    size: int


Replies = dict[int, Union[tuple[bytes, ...], Carried, Absence]]
#: A part of the course: yields requests, receives their replies, returns a T.
Requests = Generator[Request, Replies, T]


def carry(requests: Requests[T], replies_to: Callable[[Request], Any]) -> T:
    """Answer each request by ``replies_to(request)``; return what they return."""
    replies: Any = None
    while True:
        try:
            request = requests.send(replies)
        except StopIteration as stop:
            return stop.value
        replies = replies_to(request)


@dataclass(frozen=True)
class Spent:
    """The seconds of a part of a run, and its bytes to and from clients."""

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

    def recorded(self) -> dict[str, Any]:
        """These numbers as fields of a record of the results."""
        return {"seconds": self.seconds, "bytes_up": self.up, "bytes_down": self.down}


@dataclass(frozen=True)
class RunFacts:
    """What an exchange can make its own settings of.

    Attributes
    ----------
    demands : Demands
    num_classes, dim : int
    expected : Expected
        What the head expects of rows, with the names of the classes.
    agreed : mapping from str to str
        The settings that all sides share.
    config : mapping
        The run's settings, as plain values in sections.
    """

    demands: Demands
    num_classes: int
    dim: int
    expected: Expected
    agreed: Mapping[str, str]
    config: Mapping[str, Any]


class ClientSide:
    """One client's side of an exchange. It is made when the client is asked.

    It is kept once it holds anything of its own.

    Parameters
    ----------
    client : Client
    rows : mapping from split to Embeddings
        The client's own rows, on which it scores heads.
    """

    __slots__ = ("client", "rows")  # of which there may be very many

    def __init__(self, client: Client, rows: Mapping[str, Embeddings]):
        self.client, self.rows = client, rows

    def refused(self, problem: str, field: str = "kind") -> MessageError:
        """An error that says that the server's request is unusable."""
        return MessageError(problem, field=field, sender="the server")


class Exchange:
    """The server's side of an exchange, over one run.

    Parameters
    ----------
    course : Coordinator
        Leads the run: it sends requests and knows the clients.

    Attributes
    ----------
    name : str
        The name under which the exchange is registered.
    KINDS : tuple of RequestKind
        The requests of the exchange.
    CLIENT : subclass of ClientSide
        The class that makes a client's answers.
    SETTINGS : subclass of Section
        The settings, which are read by ``demands.of(SETTINGS)``. Those of a plugin's
        exchange are ``ggeur.<name>.*``, so their `PREFIX` is ``"<name>."``.
    REVEALS : str
        What the answers tell about a client's rows, in a few words. The privacy line of
        a run shows this text. Secure sums refuse a plugin's exchange that has none.
    NOT_BY_FOLDER : str
        If the exchange cannot go with a run by folder: the setting that makes it due.
    TAKES_WEIGHTS : bool
        Whether the exchange knows weights of rows.
    UNSCREENED : str
        A text that says what cannot be screened because of this exchange, and why this
        matters.
    apart : Spent
        The cost that the exchange records itself, so that round 0 does not count it.
    """

    name: str
    KINDS: ClassVar[tuple[RequestKind, ...]] = ()
    CLIENT: ClassVar[type[ClientSide]] = ClientSide
    REVEALS: ClassVar[str] = ""
    NOT_BY_FOLDER: ClassVar[str] = ""
    TAKES_WEIGHTS: ClassVar[bool] = False
    UNSCREENED: ClassVar[str] = ""
    SETTINGS: ClassVar[type[Section]] = Section

    def __init__(self, course: Coordinator):
        self.course, self.server = course, course.server
        self.apart = Spent()

    @staticmethod
    def objections(run: Demands) -> Objections:
        """The settings that cannot go with this exchange, each with the reason."""
        return ()

    @classmethod
    def agreed(cls, run: Demands) -> Mapping[str, object]:
        """Further settings that must be equal on all sides if this exchange is due."""
        if not is_of_plugin(cls.SETTINGS):
            return {}
        own, keys = run.of(cls.SETTINGS), cls.SETTINGS.by_field()
        return {key.field: getattr(own, name) for name, key in keys.items()}

    @classmethod
    def states(cls, chosen: Mapping[str, Any]) -> Mapping[str, bool]:
        """The facts of a run that this exchange states, by fields of `Demands`.

        These are ``brings_totals``, ``only_totals``, ``noisy`` and ``reports_scores``.

        Parameters
        ----------
        chosen : mapping from field to value
            All settings of a run.
        """
        return {}

    @staticmethod
    def transform(run: Demands) -> str:
        """The transform of rows that the exchange brings; "" if it brings none."""
        return ""

    @staticmethod
    def start_note(run: Demands) -> str:
        """A note at the start of a run with this exchange; "" if there is none."""
        return ""

    @staticmethod
    def forecast(settings: RoleSettings, clients: int) -> list[str]:
        """Lines for a dry run with this number of clients."""
        return []

    @staticmethod
    def privacy(before: Privacy, run: Demands) -> Privacy:
        """The privacy of a run with this exchange; `before` is that without it."""
        return before

    @staticmethod
    def note_on_head(head: Model | None, class_names: Sequence[str]) -> str:
        """A note for a site on the head that it got; "" if there is none."""
        return ""

    @staticmethod
    def check_places(run: Demands) -> None:
        """Refuse a place where a new run would write, if it cannot be used.

        Raises
        ------
        ConfigError
        """

    @classmethod
    def settings_of(cls, run: RunFacts) -> object | None:
        """The exchange's own settings, which `RoleSettings.of` finds by their class."""
        return None

    @staticmethod
    def writing(
        settings: RoleSettings, folder: str | os.PathLike
    ) -> AbstractContextManager[object]:
        """A context in which a run writes its files into `folder`."""
        return nullcontext()

    @staticmethod
    def renaming(config: Mapping, folder: Path, to: Path) -> bool:
        """Rename the folder of a finished run, if this must be noted elsewhere.

        Parameters
        ----------
        config : mapping
            The run's settings, as plain values in sections.
        folder, to : Path

        Returns
        -------
        bool
            False if nothing is to be noted. The caller then renames the folder.
        """
        return False

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        """Whether a run with these demands asks this question."""
        return True

    @classmethod
    def answered(cls, demands: Demands) -> tuple[RequestKind, ...]:
        """The kinds of request that a client with these demands answers."""
        return cls.KINDS if cls.is_due(demands) else ()

    @classmethod
    def withheld_note(cls, counts: np.ndarray, threshold: int) -> str:
        """A note if the min-count threshold withholds many rows of a total; else "".

        Parameters
        ----------
        counts : int array [K, C]
            The rows of each class that each client holds.
        threshold : int
        """
        return ""

    def ask_present(
        self, kind: RequestKind, number: int, among: Iterable[int], *parts: bytes
    ) -> Requests[list]:
        """Send `parts` to the present clients of `among`; returns their answers."""
        here = self.course.membership.here(among)
        return (yield from self.course.ask(kind, number, dict.fromkeys(here, parts)))

    def begin(self) -> Requests[None]:
        """Run this exchange's part of round 0."""
        yield from ()

    def complete(self) -> Requests[None]:
        """Run the second part of round 0, after `begin` of all exchanges."""
        yield from ()

    def on_statistics(self, upload: Any) -> None:
        """Use the statistics of one client; the caller does not keep them.

        Clients come in ascending order.
        """

    def on_total(self, statistics: Any) -> None:
        """Use the part of the summed statistics that clients may get."""

    def catch_up(self, returned: list[int]) -> Requests[None]:
        """Catch up with returned clients: send or ask what they may have missed."""
        yield from ()

    def round(self, number: int) -> Requests[dict[str, Any]]:
        """Run this exchange's part of a round. Returns fields for its record."""
        yield from ()
        return {}

    def record(self) -> dict[str, Any]:
        """Fields for the record of round 0.

        For a plugin's exchange these are plain values. They are written to
        ``exchanges.<name>``.
        """
        return {}

    def kept(self) -> dict[str, Tensor]:
        """The tensors of round 0 that a checkpoint keeps for `resume`."""
        return {}

    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state of round 0 from the tensors of `kept`."""

    def progress(self) -> dict[str, Any]:
        """The state of the rounds that a checkpoint keeps, as plain values."""
        return {}

    def resume_progress(self, values: Mapping[str, Any]) -> None:
        """Restore the state of the rounds from the values of `progress`.

        Raises
        ------
        KeyError, DataError
            The values are not those of `progress`.
        """


#: All exchanges, in the order in which they are asked.
EXCHANGES: Registry[type[Exchange]] = Registry("exchange", "plugins", has_sections=True)
#: The values of `RequestKind.deadline`.
DEADLINES = ("round0", "train", "evaluate")


def register_exchange(
    name: str, before: str = ""
) -> Callable[[type[Exchange]], type[Exchange]]:
    """A decorator that registers a subclass of `Exchange` under `name`.

    The server asks a plugin's exchange after the package's own. It does so only in runs
    whose ``ggeur.plugins`` name the module. A client answers only if its own settings
    name the module, too. An installed entry point is not enough. An exchange of an
    extra is asked `before` another one.

    Raises
    ------
    TypeError
        The class is not an `Exchange`, or a request has an unknown deadline.
    ValueError
        The name of the exchange, of a request or of a message is taken.
    """

    EXCHANGES.require_name(name)

    def register(part: type[Exchange]) -> type[Exchange]:
        check_class(f"the exchange '{name}'", part, Exchange)
        check_section(f"the exchange '{name}'", name, part.SETTINGS)
        others = (EXCHANGES[other] for other in EXCHANGES if other != name)
        taken = {t for other in others for kind in other.KINDS for t in _texts_of(kind)}
        for kind in part.KINDS:
            if kind.deadline not in DEADLINES:
                raise TypeError(
                    f"the request '{kind.name}' of the exchange '{name}' has the "
                    f"unknown deadline {kind.deadline!r}; use one of "
                    f"{', '.join(DEADLINES)}"
                )
            for text in _texts_of(kind) & taken:
                raise ValueError(
                    f"the exchange '{name}' has a request or message '{text}', but "
                    "another exchange has this name already; choose another name"
                )
        return EXCHANGES.add(name, part, before)

    return register


def _texts_of(kind: RequestKind) -> set[str]:
    """The names in a request kind that no other kind may have."""
    return {kind.name, kind.message, kind.answer_message} - {""}


def due_exchanges(demands: Demands) -> list[type[Exchange]]:
    """The exchanges of a run: the package's own, then those of its plugins."""
    due = [part for part in own_exchanges() if part.is_due(demands)]
    return [*due, *plugin_exchanges(demands)]


@contextmanager
def writing_files(settings: RoleSettings, folder: str | os.PathLike) -> Iterator[None]:
    """A context in which a run writes its files into `folder`.

    Raises
    ------
    ConfigError
        An exchange of the run forbids it.
    """
    with ExitStack() as contexts:
        for part in due_exchanges(settings.demands):
            contexts.enter_context(part.writing(settings, folder))
        yield


def rename_run(config: Mapping, folder: Path, to: Path) -> None:
    """Rename the folder of a finished run that had the settings `config`.

    Raises
    ------
    ConfigError
        An exchange of the run forbids it.
    """
    load_extras(dict(flatten(config["ggeur"])))
    allowed = EXCHANGES.allowed(config["ggeur"].get("plugins", ()))
    if not any(part.renaming(config, folder, to) for part in allowed):
        os.rename(folder, to)


def own_exchanges() -> list[type[Exchange]]:
    """The package's own exchanges, with those of loaded extras."""
    return [part for part in EXCHANGES.values() if not is_of_plugin(part)]


def plugin_exchanges(demands: Demands) -> list[type[Exchange]]:
    """The plugin exchanges of a run."""
    allowed = EXCHANGES.allowed(demands.plugins)
    return [part for part in allowed if is_of_plugin(part) and part.is_due(demands)]


def answered_kinds(demands: Demands) -> Mapping[RequestKind, type[Exchange]]:
    """The requests that a client with these demands answers, each with its exchange."""
    return {
        kind: part
        for part in EXCHANGES.allowed(demands.plugins)
        for kind in part.answered(demands)
    }


def all_kinds() -> list[RequestKind]:
    """The request kinds of all registered exchanges."""
    return [kind for part in EXCHANGES.values() for kind in part.KINDS]


# Checks that several validations share.


def refusal(client: int, field: str, problem: str) -> MessageError:
    """An error that says that a client's answer is unusable."""
    return MessageError(problem, field=field, sender=f"client {client}")


def require_known(client: int, known: Iterable[int], repeated: bool = False) -> None:
    """Refuse an answer of an unknown client, or a second answer."""
    if client not in known or repeated:
        problem = "sent twice" if repeated else "not a client of this run"
        raise refusal(client, "client", problem)


def require_stage(
    client: int, said: str, asked: str, field: str, numbers: Tensor, length: int
) -> None:
    """Refuse a vector that is not of the `asked` stage, or not of its `length`."""
    if said != asked:
        raise refusal(client, "stage", f"expected '{asked}', got {said!r:.80}")
    if len(numbers) != length:
        problem = f"{len(numbers)} numbers, and stage '{asked}' has {length}"
        raise refusal(client, field, problem)


def ask_all(
    course: Coordinator,
    kind: RequestKind,
    data: bytes,
    numbers: Collection[int],
    sizes: dict[str, int],
    after: str,
) -> Requests[list]:
    """Ask clients in round 0, and return their answers. All of them must answer.

    Parameters
    ----------
    course : Coordinator
    kind : RequestKind
    data : bytes
        The message; each client gets the same.
    numbers : collection of int
        The clients.
    sizes : dict from client to int
        Bytes that each client has sent so far; the function adds those of its answer.
    after : str
        The end of the error: what a missing answer means for the other clients.

    Raises
    ------
    GGEURError
        A client does not answer.
    """
    own: dict[str, int] = {}
    answers = yield from course.ask(kind, 0, dict.fromkeys(numbers, (data,)), own)
    for k, size in own.items():
        sizes[k] = sizes.get(k, 0) + size
    missing = sorted(set(numbers) - {one.client for one in answers})
    if missing:
        absent = course.membership.absent
        # A client that is gone for good ends the wait for the others.
        missing = [k for k in missing if k in absent] or missing
        why = "; ".join(
            of_client(k, absent.get(k, "no usable answer")) for k in missing
        )
        raise GGEURError(
            f"round 0, {kind.name}: the sum needs an answer of every client of its "
            f"roster, but {len(missing)} of {len(numbers)} are missing. {why}. The "
            f"server waited for them as long as {setting('deadline')} allows. {after}"
        )
    return answers


def require_tensors(
    tensors: Mapping[str, Tensor],
    specs: Specs,
    field: str,
    client: int,
) -> None:
    """Refuse an answer unless its tensors have the names and shapes of `specs`."""
    problem = names_problem(tensors, specs)
    if problem:
        raise refusal(client, field, problem)
    for name, spec in specs.items():
        problem = spec.problem(tensors[name])
        if problem:
            raise refusal(client, f"{field}.{name}", problem)
