"""Makes the space of training, from means and variances of clients' rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.geometry import (
    LARGEST_EMBEDDING,
    SPACES,
    Space,
    Statistics,
    Totals,
)
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import Privacy
from federatedscope_ggeur.settings import Section, key, one_of

from .. import wire
from ..demands import Demands
from ..sampling import windows
from ..wire import schema as limits
from ..wire.schema import Declared, MessageSchema
from .base import (
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    register_exchange,
    require_known,
)
from .statistics.keys import StatisticsKeys
from .statistics.upload import EMBEDDINGS, StatisticsUpload

F64 = torch.float64
_ROUNDING = 1e-6


class TotalsUpload(wire.Payload, kind="totals"):
    """Round 0, client to server: mean and variances of the client's rows.

    Attributes
    ----------
    client : int
    totals : Totals
        Totals of the rows that no statistics contain.
    within : float
        The trace of the within-class scatter of the other rows, if their statistics
        have only means.
    within_squares : Tensor of shape (D,), float64, or None
        The diagonal of the within-class scatter, if it is sent.
    """

    client: int
    totals: Totals
    within: float = 0.0
    within_squares: Tensor | None = None

    def write(self) -> wire.Content:
        totals = self.totals
        numbers = {
            "client": self.client,
            "count": totals.count,
            "spread": totals.spread,
            "within": self.within,
        }
        tensors = {"mean": totals.mean, "squares": totals.squares}
        if self.within_squares is not None:
            tensors["within_squares"] = self.within_squares
        return numbers, tensors

    @classmethod
    def read(cls, message: wire.Message, schema: MessageSchema) -> TotalsUpload:
        count = message.integer("count")
        # Without rows the mean is 0.
        allowed = EMBEDDINGS if count else (0.0, 0.0)
        mean = message.tensor("mean", F64, (schema.dim,), allowed)
        most = LARGEST_EMBEDDING**2 * schema.dim * wire.LARGEST
        spread = message.number("spread", most if count > 1 else 0.0)
        within = message.number(
            "within", most if schema.statistics.content == "means" else 0.0
        )
        squares = _squares(message, "squares", spread, schema.dim)
        inside = None
        if message.has("within_squares"):
            inside = _squares(message, "within_squares", within, schema.dim)
        totals = Totals(count, mean, spread, squares)
        return cls(message.client(), totals, within, inside)


def _squares(message: wire.Message, name: str, most: float, dim: int) -> Tensor:
    """Read the sums of squares of each dimension [D], at most `most` together."""
    squares = message.tensor(name, F64, (dim,), (0, math.inf))
    if float(squares.sum()) > (1 + _ROUNDING) * most:
        raise message.refuse(
            name, f"must sum to at most {most:g}, the spread of the rows"
        )
    return squares


class SpaceBroadcast(wire.Payload, kind="space"):
    """Round 0, server to all clients: the space of training, if it is not raw."""

    space: Space

    def write(self) -> wire.Content:
        space = self.space
        numbers = {"kind": space.kind, "scale": space.scale}
        tensors = {"centre": space.centre}
        if space.scales is not None:
            tensors["scales"] = space.scales
        return numbers, tensors

    @classmethod
    def read(cls, message: wire.Message, schema: MessageSchema) -> SpaceBroadcast:
        kind, scale, dim = message.text("kind"), message.number("scale"), schema.dim
        if kind not in SPACES:
            raise message.refuse("kind", f"expected one of {SPACES}, got {kind!r:.80}")
        if not scale > 0:
            raise message.refuse("scale", "must be above 0")
        centre = message.tensor("centre", F64, (dim,))
        scales = None
        if kind == "standard" and message.has("scales"):
            scales = message.tensor("scales", F64, (dim,))
            if not (scales > 0).all():
                raise message.refuse("scales", "must be above 0")
        return cls(Space(kind, centre, scale, scales))


logger = get_logger(__name__)


class SpaceMaker:
    """Collects totals of clients' rows and makes the space.

    Parameters
    ----------
    dim : int
        D of the embeddings.

    Attributes
    ----------
    told : set of int
        The clients whose totals have arrived.
    """

    def __init__(self, dim: int):
        self._dim = dim
        self._totals = Totals.empty(dim)
        self.told: set[int] = set()

    def add_statistics(self, statistics: Statistics) -> None:
        """Add class statistics of a client, or of all at once."""
        self._totals = self._totals + Totals.of_statistics(statistics)

    def add(self, uploads: Iterable[TotalsUpload]) -> None:
        """Add the totals of one window of clients, in client order."""
        for upload in sorted(uploads, key=lambda upload: upload.client):
            self.told.add(upload.client)
            self._totals = self._totals + upload.totals
            # the means of these rows are included already
            spread, squares = self._totals.spread + upload.within, self._totals.squares
            if upload.within_squares is not None:
                squares = squares + upload.within_squares
            self._totals = replace(self._totals, spread=spread, squares=squares)

    def make(self) -> Space:
        """Make the space from all known rows.

        The space stays raw, with a warning, if clients reported no rows.
        """
        if self._totals.count:
            return Space.standard(self._totals)
        logger.warning(
            "training uses raw embeddings, because no client has as many rows as %s "
            "requires for totals; lower it, or choose a learning rate that suits "
            "these embeddings",
            setting("min_samples"),
        )
        return Space.raw(self._dim)


class SpaceKeys(Section):
    """The setting of the space."""

    space: str = key(
        SPACES[0],
        "Coordinates of the embeddings in training, from totals of the clients' rows. "
        "standard: centred and scaled so that one learning rate suits all embeddings; "
        "dimensions in different units are scaled one by one. raw: the embeddings as "
        "they are. The saved head takes raw embeddings in each case.",
        one_of(*SPACES),
        shared=True,
    )


class SpaceClient(ClientSide):
    """Sends totals of the rows about which the client may report."""

    def totals(self) -> TotalsUpload:
        client = self.client
        labels, least = client.labels, client.settings.min_samples
        sends = client.settings.demands.own_statistics
        told = rows_for_totals(labels, client.counts, least, sends)
        within, squares = 0.0, None
        if sends and client.task.statistics.content == "means":
            for c in torch.nonzero(client.told).flatten().tolist():
                own = Totals.of_rows(client.features[labels == c])
                within += own.spread
                squares = own.squares if squares is None else squares + own.squares
        totals = Totals.of_rows(client.features[told])
        if client.settings.of(StatisticsKeys).float32_means:
            totals = replace(totals, mean=totals.mean.float().double())
        return TotalsUpload(client.number, totals, within, squares)


def rows_for_totals(
    labels: Tensor, counts: Tensor, min_samples: int, after_statistics: bool
) -> Tensor:
    """The rows that a client's totals may cover: a mask of shape (n,), bool.

    Withheld rows are those of classes with fewer than `min_samples` rows. Totals cover
    all withheld rows if there are at least `min_samples`, and none otherwise. This
    protects small groups of rows: the server may know sums over the other classes from
    statistics or from messages of a method. The total minus these sums is the sum of
    the withheld rows. If statistics are sent, totals leave out the rows in the
    statistics.

    Parameters
    ----------
    labels : Tensor of shape (n,), int64
    counts : Tensor of shape (C,), int64
        The client's rows of each class.
    min_samples : int
    after_statistics : bool
        Whether class statistics are sent in round 0.
    """
    withheld = (counts < min_samples)[labels]
    told = withheld.new_full(labels.shape, not after_statistics) & ~withheld
    return told | withheld if int(withheld.sum()) >= min_samples else told


def _validate(exchange: SpaceExchange, request: Request, upload: TotalsUpload) -> None:
    """Refuse a second upload, and one of an unknown client."""
    repeated = upload.client in exchange.maker.told
    require_known(upload.client, exchange.server.client_domains, repeated)


def _bound(declared: Declared, exchange: Any, upload: TotalsUpload) -> None:
    """Refuse totals of more or longer rows than the client declared."""
    totals, k = upload.totals, upload.client
    declared.check_rows(k, "count", totals.count, declared.train)
    if totals.count and float(totals.mean.norm()) > declared.longest:
        norm = float(totals.mean.norm())
        declared.refuse_norm(k, "mean", "the mean of its rows", norm)
    for name, spread in (("spread", totals.spread), ("within", upload.within)):
        if spread > declared.train * declared.longest**2:
            rms = math.sqrt(spread / max(declared.train, 1))
            declared.refuse_norm(k, name, "the spread of its rows", rms)


TOTALS = RequestKind(
    name="totals",
    message="totals_request",
    deadline="round0",
    parts=(),
    respond=lambda side: side.totals(),
    answer_message="totals",
    answer=TotalsUpload,
    validate=_validate,
    bound=_bound,
    largest=lambda exchange: limits.PLAIN + 3 * 8 * exchange.server.schema.dim,
)


@register_exchange("space")
class SpaceExchange(Exchange):
    """Makes the space. It asks clients for totals if statistics do not give them.

    Attributes
    ----------
    maker : SpaceMaker
    """

    KINDS = (TOTALS,)
    CLIENT = SpaceClient
    SETTINGS = SpaceKeys
    REVEALS = "count, mean and variances of each client's rows"

    def __init__(self, course):
        super().__init__(course)
        self.maker = SpaceMaker(self.server.task.dim)
        self._bytes_up = 0

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.shares_space

    @classmethod
    def answered(cls, demands: Demands) -> tuple[RequestKind, ...]:
        return cls.KINDS if demands.totals else ()

    @classmethod
    def privacy(cls, before: Privacy, run: Demands) -> Privacy:
        seen = [cls.REVEALS] if run.totals else []
        return replace(
            before,
            server_sees=[*before.server_sees, *seen],
            clients_see=[*before.clients_see, "mean and scale of the rows of all"],
        )

    def on_statistics(self, upload: StatisticsUpload) -> None:
        self.maker.add_statistics(upload.statistics)

    def on_total(self, statistics: Statistics) -> None:
        self.maker.add_statistics(statistics)

    def begin(self) -> Requests[None]:
        """Make the space from the clients' answers."""
        course, server = self.course, self.server
        if not server.trains:
            return
        before = course.spent()
        if server.settings.demands.totals:
            for numbers in windows(server.participants, course.plan.round0_window):
                if server.settings.demands.own_statistics:
                    numbers = [k for k in numbers if k in server.merged.rows]
                self.maker.add((yield from self.ask_present(TOTALS, 0, numbers)))
        self._bytes_up = (course.spent() - before).up
        server.train_in(self.maker.make())

    def record(self) -> dict[str, Any]:
        return {"totals_bytes_up": self._bytes_up}

    def kept(self) -> dict[str, Tensor]:
        if self.server.space.is_raw:
            return {}
        return {"sent": wire.as_bytes(SpaceBroadcast(self.server.space).to_bytes())}

    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        if "sent" in tensors:
            data = wire.of_bytes(tensors["sent"])
            sent = SpaceBroadcast.from_bytes(data, self.server.schema)
            self.server.space = sent.space
