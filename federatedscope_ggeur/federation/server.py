"""The server role: all that the server does, whatever engine carries its messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation.evaluation import Score, evaluate
from federatedscope_ggeur.federation.messages import (
    Broadcast,
    ClientUpdate,
    Contract,
    Geometry,
    Prototypes,
    Ready,
    ScoreReport,
    Shared,
    StatisticsUpload,
)
from federatedscope_ggeur.federation.prototypes import PrototypeBook
from federatedscope_ggeur.federation.wire import shape_problem
from federatedscope_ggeur.geometry import ClassStatistics, GeometricShape
from federatedscope_ggeur.heads import (
    HeadSettings,
    build_head,
    num_parameters,
    to_vector,
)
from federatedscope_ggeur.methods import Method, ServerContext, Update
from federatedscope_ggeur.rng import numpy_generator, torch_generator

_FromClient = TypeVar("_FromClient", StatisticsUpload, ClientUpdate, ScoreReport)

#: Covariances come rounded to float32, which leaves noise of 1e-7 of the largest
#: eigenvalue at most.
TRAVEL_PRECISION = 4 * torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class ServerSettings:
    """What the server is told before it starts.

    Attributes
    ----------
    num_classes, dim : int
    head : HeadSettings
    method : Method
    steps : tuple of int
        Of the augmentation: none needs no statistics, 2 needs prototypes.
    prototypes : {"domain", "client"}
        One prototype for a class and other domain, or for a class and other client.
    sample_client_num : int
        Clients drawn each round.
    ignore_weight : bool
        Average with equal weights in place of n_k.
    total_rounds, eval_every : int
        Rounds in all; the head is scored every so many, and after the last one.
    seed : int
    """

    num_classes: int
    dim: int
    head: HeadSettings
    method: Method
    steps: tuple[int, ...]
    prototypes: str
    sample_client_num: int
    ignore_weight: bool
    total_rounds: int
    eval_every: int
    seed: int


class Server:
    """The server.

    Parameters
    ----------
    roster : mapping from client number to domain
    settings : ServerSettings

    Attributes
    ----------
    contract : Contract
        To decode the clients' messages against.
    params : Tensor of shape (P,)
        The global head's weights.
    statistics : ClassStatistics
        The merged statistics of all clients so far.
    """

    def __init__(self, roster: Mapping[int, str], settings: ServerSettings):
        self.roster = dict(sorted(roster.items()))
        self.settings = settings
        self.head = build_head(settings.dim, settings.num_classes, settings.head)
        self.head.reset(torch_generator(settings.seed, "head"))
        self.params = to_vector(self.head)
        self.contract = Contract(
            settings.num_classes, settings.dim, num_parameters(self.head)
        )
        self.statistics = ClassStatistics.empty(settings.num_classes, settings.dim)
        self.method_state: Mapping[str, Tensor] = {}
        self._prototypes = PrototypeBook(self.roster, settings.prototypes)
        self._uploaded: set[int] = set()
        self._ready: dict[int, Ready] = {}

    @property
    def needs_statistics(self) -> bool:
        return bool(self.settings.steps)

    # round 0

    def windows(self, size: int) -> list[list[int]]:
        """Client numbers in order, in groups to ask for statistics one by one."""
        numbers = list(self.roster)
        return [numbers[i : i + size] for i in range(0, len(numbers), size)]

    def add_statistics(self, uploads: Iterable[StatisticsUpload]) -> None:
        """Fold in the uploads of one window, in client order (Eq. 4), all or none.

        Raises
        ------
        MessageError
            From a client that is not in the roster, has sent before, or names
            another domain than it joined with.
        """
        ordered = self._in_client_order(uploads, self._uploaded)
        for upload in ordered:
            if upload.domain != self.roster[upload.client]:
                raise MessageError(
                    f"{upload.domain!r}, but it joined as "
                    f"{self.roster[upload.client]!r}",
                    field="domain",
                    sender=f"client {upload.client}",
                )
        for upload in ordered:
            self._uploaded.add(upload.client)
            self.statistics = self.statistics + upload.statistics
            if 2 in self.settings.steps:
                self._prototypes.add(upload.client, upload.statistics)

    def geometry(self) -> Geometry:
        """The global shape of every class that anyone uploaded."""
        return Geometry(
            {
                c: GeometricShape.from_statistics(self.statistics, c, TRAVEL_PRECISION)
                for c in self.statistics.classes
            }
        )

    def prototypes(self, client: int) -> Prototypes | None:
        """Class means of all sources but the client's own; None without step 2."""
        if 2 not in self.settings.steps:
            return None
        return self._prototypes.around(client)

    def add_ready(self, ready: Ready) -> None:
        """Note a client's weight and what its method shares.

        Raises
        ------
        MessageError
            From a client that is not in the roster or has sent before, or shares that
            are not what the method shares.
        """
        self._check_sender(ready.client, ready.client in self._ready)
        shapes = self.settings.method.share_shapes(self.head)
        _check_tensors(ready.shared, shapes, "shared", ready.client)
        self._ready[ready.client] = ready

    def start(self) -> Shared | None:
        """End round 0; what the method made of all shares, if anything, goes to all.

        Raises
        ------
        GGEURError
            Clients are missing, or none has any data.
        """
        missing = sorted(self.roster.keys() - self._ready.keys())
        if missing:
            raise GGEURError(f"round 0 cannot end: clients {missing} are not ready")
        if not any(ready.weight for ready in self._ready.values()):
            raise GGEURError("no client has any rows to train on")
        method, context = self.settings.method, self._context(0)
        shared = method.combine(context.shares)
        self.method_state = method.initial_state(self.params, context)
        return Shared(shared) if shared else None

    # every round

    def sample(self, round_number: int) -> list[int]:
        """Numbers of the clients that train in a round, ascending."""
        numbers, wanted = list(self.roster), self.settings.sample_client_num
        if wanted >= len(numbers):
            return numbers
        generator = numpy_generator(self.settings.seed, "sample", round_number)
        return sorted(generator.choice(numbers, wanted, replace=False).tolist())

    def broadcast(self, round_number: int) -> Broadcast:
        download = self.settings.method.download(self.method_state)
        return Broadcast(round_number, self.params, download)

    def step(self, round_number: int, updates: Iterable[ClientUpdate]) -> None:
        """The method's server step over the updates of a round, in client order.

        Raises
        ------
        MessageError
            An update of another round, a client that was not drawn, two of one, or
            tensors that are not what the method uploads.
        """
        upload_shapes = self.settings.method.upload_shapes(self.head)
        drawn = set(self.sample(round_number))
        ordered = self._in_client_order(updates)
        for update in ordered:
            if update.round_number != round_number or update.client not in drawn:
                raise MessageError(
                    f"an update of round {update.round_number} from a client that "
                    f"{'was' if update.client in drawn else 'was not'} drawn, in round "
                    f"{round_number}",
                    field="round",
                    sender=f"client {update.client}",
                )
            _check_tensors(update.upload, upload_shapes, "upload", update.client)
        weights = self._weights()
        self.params, self.method_state = self.settings.method.step(
            self.params,
            [
                Update(u.client, weights[u.client], u.params, u.steps, u.upload)
                for u in ordered
            ],
            self.method_state,
            self._context(round_number),
        )

    def evaluates(self, round_number: int) -> bool:
        """Whether the head is scored after this round."""
        settings = self.settings
        due = round_number % settings.eval_every == 0
        return due or round_number == settings.total_rounds

    def add_up(
        self, round_number: int, reports: Iterable[ScoreReport]
    ) -> dict[str, Score]:
        """The clients' scores of this round by domain.

        Raises
        ------
        MessageError
            A report of another round, of no client of this run, or two of one.
        """
        scores = {domain: Score() for domain in dict.fromkeys(self.roster.values())}
        for report in self._in_client_order(reports):
            if report.round_number != round_number:
                raise MessageError(
                    f"scores of round {report.round_number} in round {round_number}",
                    field="round_number",
                    sender=f"client {report.client}",
                )
            scores[self.roster[report.client]] += Score(
                report.correct, report.total, report.loss_sum
            )
        return scores

    def score(self, features: Tensor, labels: Tensor) -> Score:
        """Score the global head on test rows [n, D], [n] that the server holds."""
        return evaluate(self.head, self.params, features, labels)

    def _in_client_order(
        self, messages: Iterable[_FromClient], earlier: Collection[int] = ()
    ) -> list[_FromClient]:
        """`messages` sorted, if each is from a client of this run not heard before."""
        ordered = sorted(messages, key=lambda message: message.client)
        seen = set(earlier)
        for message in ordered:
            self._check_sender(message.client, message.client in seen)
            seen.add(message.client)
        return ordered

    def _check_sender(self, client: int, repeated: bool) -> None:
        if client not in self.roster or repeated:
            raise MessageError(
                "sent twice" if repeated else "not a client of this run",
                field="client",
                sender=f"client {client}",
            )

    def _weights(self) -> dict[int, float]:
        equal = self.settings.ignore_weight
        return {
            k: float(self._ready[k].weight > 0) if equal else self._ready[k].weight
            for k in self.roster
        }

    def _context(self, round_number: int) -> ServerContext:
        shares = {k: self._ready[k].shared for k in self.roster}
        return ServerContext(
            round_number, self.head, self._weights(), shares, self.settings.seed
        )


def _check_tensors(tensors, shapes, field: str, client: int) -> None:
    """Raise `MessageError` unless a method's `tensors` are those of `shapes`."""
    sender = f"client {client}"
    if tensors.keys() != shapes.keys():
        raise MessageError(
            f"the method sends {sorted(shapes)}, got {sorted(tensors)}",
            field=field,
            sender=sender,
        )
    for name, shape in shapes.items():
        problem = shape_problem(tensors[name], shape)
        if problem:
            raise MessageError(problem, field=f"{field}.{name}", sender=sender)
