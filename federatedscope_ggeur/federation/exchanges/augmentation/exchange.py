"""The end of round 0: the server sends geometry and prototypes to clients.

Makes the global shapes of the merged statistics, which clients get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.client import Client, chosen_rows
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.sampling import log_largest_share, windows
from federatedscope_ggeur.federation.screening import ROWS, beyond
from federatedscope_ggeur.federation.settings import check_batches
from federatedscope_ggeur.federation.wire import schema
from federatedscope_ggeur.federation.wire.schema import Declared
from federatedscope_ggeur.geometry import (
    AugmentedSet,
    GeometricShape,
    Space,
    Statistics,
    Totals,
    augment,
)
from federatedscope_ggeur.models import MLPHead, Model, trainable_part
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.rng import derive_seed

from ..base import (
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    refusal,
    register_exchange,
    require_known,
    require_tensors,
)
from ..closed_form.client import ClosedFormClient
from ..closed_form.messages import LeaveOneOut, OneCandidate
from ..space import SpaceBroadcast
from ..statistics.upload import StatisticsUpload
from . import keys
from .keys import SetSettings
from .messages import (
    Geometry,
    HeldOut,
    InitBroadcast,
    PrepareReply,
    PrototypeBook,
    Prototypes,
    of_the_others,
)

#: Covariances arrive rounded to float32. The noise is at most 1e-7 of the largest
#: eigenvalue.
TRAVEL_PRECISION = 4 * torch.finfo(torch.float32).eps


logger = get_logger(__name__)

#: Of clients that send nothing once: one for all of them.
_NO_UPLOAD: Mapping[str, Tensor] = {}


class SetMaker:
    """Makes the recipe of a client's training set from the server's messages.

    A client that is never drawn only holds this object, and no set. A set that is not
    `for_training` says what the client counts for. It has the rows that are held out,
    and no offsets.
    """

    __slots__ = ("for_training", "geometry", "prototypes")

    def __init__(
        self,
        geometry: Geometry | None,
        prototypes: Prototypes | None,
        for_training: bool = True,
    ):
        self.geometry, self.prototypes = geometry, prototypes
        self.for_training = for_training

    def __call__(self, client: Client) -> AugmentedSet:
        own, prototypes = client.settings.of(SetSettings), self.prototypes
        rows, labels = client.features, client.labels
        kept = torch.ones(len(labels), dtype=torch.bool)
        if self.for_training:
            kept = ~client.held_out()
        if not own.train_withheld:
            kept &= client.told[labels]
        rows, labels = chosen_rows(rows, labels, kept)
        space: Space | None = client.space
        if self.for_training and client.one_shot and client.one_shot.gives_offsets:
            side = ClosedFormClient(client, {})
            logits = side.left_out(client.merged, client.one_shot, kept)
            offsets = Model.offsets(logits).float()
            rows = torch.cat([client.space.features(rows), offsets], dim=1)
            space = None  # they are in it already
        if prototypes is None:
            prototypes = Prototypes(labels[:0], rows[:0])
        elif prototypes.counts is not None:
            prototypes = of_the_others(
                prototypes, client.features, client.labels, client.space
            )
        return augment(
            rows,
            labels,
            self.geometry.shapes if self.geometry else {},
            prototypes.prototypes,
            prototypes.labels,
            own.augmentation,
            derive_seed(client.task.seed, client.number, "augment"),
            space,
        )


class AugmentationClient(ClientSide):
    """Prepares a client's training set."""

    def prepare(
        self,
        geometry: Geometry | None,
        prototypes: Prototypes | None,
        space: SpaceBroadcast | None = None,
        components: LeaveOneOut | None = None,
        one_shot: OneCandidate | None = None,
        held_out: HeldOut | None = None,
    ) -> PrepareReply:
        """Set up the recipe of the training set from the server's messages.

        Without geometry (no augmentation steps) the client trains on its own rows.
        Geometry and prototypes are in the space that the server sent with them. A
        one-shot head scores rows held out; it may also give each row its offsets, see
        `MLPHead`. Rows that are held out count in the client's weight, but are not
        trained on. A client that trains on no withheld rows holds none out.

        Raises
        ------
        MessageError
            This client cannot use the one-shot head, or was prepared with another head
            or another share of rows. A server that could choose these several times
            could tell rows apart by the losses on rows held out.
        """
        client, own = self.client, self.client.settings.of(SetSettings)
        training = client.settings.training
        share = 0.0 if held_out is None else held_out.share
        if not own.train_withheld:
            share = 0.0  # rows held out may be of withheld classes
        before = client.held_share, client.one_shot
        if client.held_share is not None and before != (share, one_shot):
            problem = "the client was prepared with another head or share before"
            raise self.refused(problem, "held_out")
        client.space = self._own_space() if space is None else space.space
        if components is not None or one_shot is not None:
            draws = geometry is not None or prototypes is not None
            self._check_one_shot(draws, components, one_shot)
        recipe = SetMaker(geometry, prototypes, for_training=False)(client)
        rows, labels = recipe.features, recipe.own_labels
        weight = {
            "augmented": recipe.whole,
            "original": len(labels),
            "statistics": int(client.counts[client.told].sum()),
        }[own.weight]
        check_batches(client.model, training, recipe.rows, client.number)
        if training.drop_last and recipe.rows < training.batch_size:
            logger.warning(
                "client %d never trains, because its %d rows are fewer than %s %d "
                "and %s is True",
                client.number,
                recipe.rows,
                setting("batch_size"),
                training.batch_size,
                setting("drop_last"),
            )
            weight = 0
        context = client.context(0, torch.zeros(0), {})
        init_upload = client.task.method.init_upload(
            client.space.features(rows), labels, context
        )
        client.held_share, client.one_shot = share, one_shot
        # After the context, which would make the set: most clients are never drawn.
        client.train_on(SetMaker(geometry, prototypes))
        client.aggregation_weight = float(weight)
        return PrepareReply(client.number, client.aggregation_weight, init_upload)

    def receive(self, message: InitBroadcast) -> None:
        """Keep the method's message to all clients."""
        self.client.init_broadcast = dict(message.tensors)

    def _check_one_shot(
        self,
        draws: bool,
        components: LeaveOneOut | None,
        one_shot: OneCandidate | None,
    ) -> None:
        """Require both messages and an MLP; offsets need rows that are own."""
        client = self.client
        fits = isinstance(client.model, MLPHead)
        fits &= client.settings.demands.leaves_one_out
        if not fits or components is None or one_shot is None:
            problem = "a mean with a one-shot head needs that head and an MLP"
            raise self.refused(problem, "one_candidate")
        if one_shot.gives_offsets and draws:
            raise self.refused("rows that are drawn have no offsets", "one_candidate")
        ClosedFormClient(client, {}).check_head(components, one_shot)

    def _own_space(self) -> Space:
        """The space to use if the server sent none.

        It is raw, or the space of the client's own rows if the client trains alone.
        """
        client, task = self.client, self.client.task
        if task.method.federated or task.space == "raw" or not len(client.features):
            return Space.raw(task.dim)
        return Space.standard(Totals.of_rows(client.features))


def _validate(
    exchange: AugmentationExchange, request: Request, reply: PrepareReply
) -> None:
    """Require the method's tensors, and the same weight in a repeated reply."""
    server = exchange.server
    method, k = server.task.method, reply.client
    require_known(k, server.client_domains)
    specs = method.init_upload_shapes(server.model)
    require_tensors(reply.init_upload, specs, "init_upload", k)
    problem = method.init_upload_problem(reply.init_upload, server.model)
    if problem:
        raise refusal(k, "init_upload", problem)
    before = server.aggregation_weights.get(k)
    if before is not None and before != reply.aggregation_weight:
        raise refusal(
            k,
            "aggregation_weight",
            f"the client came back with {reply.aggregation_weight:g}, but had "
            f"{before:g} before; restart it with the data and settings with which it "
            "began",
        )


def _bound(declared: Declared, exchange: Any, reply: PrepareReply) -> None:
    """Refuse a weight above the client's number of rows, if the weight counts rows."""
    weight = reply.aggregation_weight
    if exchange.settings.weight != "augmented":
        rows = declared.train
        declared.check_rows(reply.client, "aggregation_weight", weight, rows)


PREPARE = RequestKind(
    name="prepare",
    message="geometry",
    deadline="round0",
    parts=(Geometry, Prototypes, SpaceBroadcast, LeaveOneOut, OneCandidate, HeldOut),
    respond=lambda side, *parts: side.prepare(*parts),
    answer_message="prepare_reply",
    answer=PrepareReply,
    validate=_validate,
    bound=_bound,
    largest=lambda exchange: schema.of_tensors(
        0, exchange.server.task.method.init_upload_shapes(exchange.server.model)
    ),
    optional_parts=True,
    shared_parts=True,
)
INIT_BROADCAST = RequestKind(
    name="init_broadcast",
    message="init_broadcast",
    deadline="round0",
    parts=(InitBroadcast,),
    respond=lambda side, message: side.receive(message),
)


@register_exchange("augmentation")
class AugmentationExchange(Exchange):
    """Prepares clients for training, including those that come back.

    Attributes
    ----------
    settings : SetSettings
    book : PrototypeBook
        The class means by source, kept for clients that come back.
    geometry, init_broadcast : bytes
        The messages to all clients; empty if there are none.
    """

    KINDS = (PREPARE, INIT_BROADCAST)
    CLIENT = AugmentationClient
    SETTINGS = keys.AugmentationKeys
    objections = staticmethod(keys.objections)
    REVEALS = (
        "each client's aggregation weight, and the tensors that its method sends in "
        "round 0"
    )

    def __init__(self, course):
        super().__init__(course)
        server = self.server
        self.settings = server.settings.of(SetSettings)
        self.book = PrototypeBook(server.client_domains, self.settings.prototypes)
        self.geometry = self.init_broadcast = b""
        self._sent: dict[str, int] = {}

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.trains

    @property
    def _steps(self) -> tuple[int, ...]:
        """The steps by which clients draw.

        There are none if the run leaves the mean of two heads, unless the trained one
        learns alone.
        """
        averaging = self.server.averaging
        spared = averaging is not None and not averaging.alone
        return () if spared else self.settings.augmentation.steps

    def on_statistics(self, upload: StatisticsUpload) -> None:
        if 2 in self._steps:
            self.book.add(upload.client, upload.statistics)

    def on_total(self, statistics: Statistics) -> None:
        self.book.take(statistics)

    def make_geometry(self) -> Geometry:
        """Make the shapes of classes from merged statistics, in the space of training.

        If shapes are pooled, all classes have one, also classes without statistics.
        """
        server, pooled = self.server, self.server.task.pooled_geometry
        statistics = server.merged.statistics.to("pooled" if pooled else "class")
        held = server.space.statistics(statistics)
        if pooled:
            if not held.classes:
                return Geometry({}, pooled=True)
            one = GeometricShape.pooled(held, TRAVEL_PRECISION)
            return Geometry(dict.fromkeys(range(held.num_classes), one), pooled=True)
        shape = GeometricShape.from_statistics
        return Geometry({c: shape(held, c, TRAVEL_PRECISION) for c in held.classes})

    def prototypes(self, client: int) -> Prototypes | None:
        """The class means of all sources but the client's own, in the space.

        None without step 2.
        """
        if 2 not in self._steps:
            return None
        return self.book.around(client, self.server.space)

    def begin(self) -> Requests[None]:
        """Prepare all clients for training."""
        server, members = self.server, self.course.membership
        if not server.trains:
            return
        if self._steps:
            self.geometry = self.make_geometry().to_bytes()
        sent = yield from self._prepare(members.here(server.participants))
        weights, settings = server.aggregation_weights, server.settings
        log_largest_share(weights, settings.ignore_weight, settings.max_share)
        # a client may be back, but too late for its window
        message = self.start(members.unprepared)
        down = 0
        if message is not None:
            self.init_broadcast = message.to_bytes()
            down = yield from self._send_init_broadcast(members.prepared)
        self._sent = {**sent, "init_broadcast_bytes_down": down}

    def start(self, absent: Collection[int] = ()) -> InitBroadcast | None:
        """End round 0 and return the method's message to all clients.

        Raises
        ------
        GGEURError
            A client that is not `absent` is missing, or no client has data.
        """
        server = self.server
        weights = server.aggregation_weights
        missing = sorted(set(server.participants) - weights.keys() - set(absent))
        if missing:
            raise GGEURError(f"round 0 cannot end: clients {missing} are not ready")
        if not any(weights.values()):
            raise GGEURError("no client has any rows to train on")
        method, context = server.task.method, server.context(0)
        tensors = method.aggregate_init(context.init_uploads)
        params = trainable_part(server.model, server.params)
        server.begin_training(method.initial_state(params, context))
        return InitBroadcast(tensors) if tensors else None

    def add_reply(self, reply: PrepareReply) -> None:
        """Keep a client's aggregation weight and its method's tensors.

        A client that comes back was ready before, so its first reply stays valid.
        """
        server, k = self.server, reply.client
        if k not in server.aggregation_weights:
            server.aggregation_weights[k] = reply.aggregation_weight
            server.init_uploads[k] = reply.init_upload or _NO_UPLOAD

    def catch_up(self, returned: list[int]) -> Requests[None]:
        """Prepare returned clients that lack what round 0 sent."""
        unprepared = self.course.membership.unprepared
        missing = [k for k in returned if k in unprepared]
        if not missing:
            return
        yield from self._prepare(missing)
        if self.init_broadcast:
            unprepared = self.course.membership.unprepared
            prepared = [k for k in missing if k not in unprepared]
            yield from self._send_init_broadcast(prepared)

    def record(self) -> dict[str, Any]:
        return self._sent

    def kept(self) -> dict[str, Tensor]:
        kept = {f"prototypes.{name}": t for name, t in self.book.tensors().items()}
        for name in ("geometry", "init_broadcast"):
            kept[name] = wire.as_bytes(getattr(self, name))
        weights = self.server.aggregation_weights
        # Two tensors, not one for each of very many clients.
        kept["weights.clients"] = torch.tensor([*weights], dtype=torch.int64)
        kept["weights.values"] = torch.tensor([*weights.values()], dtype=torch.float64)
        for k in weights:
            for name, tensor in self.server.init_uploads[k].items():
                kept[f"init_upload.{k}.{name}"] = tensor
        return kept

    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        server = self.server
        held: dict[str, Tensor] = {}
        uploads: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            what, _, rest = key.partition(".")
            number, _, name = rest.partition(".")
            if what == "prototypes":
                held[rest] = tensor
            elif what == "init_upload":
                uploads.setdefault(int(number), {})[name] = tensor
            elif what != "weights":
                setattr(self, what, wire.of_bytes(tensor))
        self.book.load(held)
        values = tensors["weights.values"].tolist()
        for k, weight in zip(tensors["weights.clients"].tolist(), values):
            server.aggregation_weights[k] = weight
            server.init_uploads[k] = uploads.get(k, _NO_UPLOAD)

    def _prepare(self, numbers: list[int]) -> Requests[Counter[str]]:
        """Prepare clients for training. Returns the number of bytes sent, by name."""
        course, sent = self.course, Counter[str]()
        before, held = course.spent(), self.server.space
        space = b"" if held.is_raw else SpaceBroadcast(held).to_bytes()
        head, share = self.server.one_shot, self.server.held_share
        held_out = HeldOut(share).to_bytes() if share else b""
        for window in windows(numbers, course.plan.round0_window):
            asked = {}
            for k in course.membership.here(window):
                around = self.prototypes(k)
                prototypes = around.to_bytes() if around else b""
                one_shot = (b"", b"") if head is None else head.to(k)
                asked[k] = (self.geometry, prototypes, space, *one_shot, held_out)
                sent["geometry_bytes_down"] += len(self.geometry)
                sent["prototypes_bytes_down"] += len(prototypes)
                sent["space_bytes_down"] += len(space)
                sent["offsets_bytes_down"] += sum(map(len, one_shot))
            for reply in (yield from course.ask(PREPARE, 0, asked)):
                self.add_reply(reply)
                course.membership.note_prepared(reply.client)
        weights = self.server.aggregation_weights
        unlike = beyond(weights, ROWS, "its aggregation weight")
        unlike = course.screen.refused("weight", unlike)
        for k in unlike:
            del weights[k], self.server.init_uploads[k]
        course.put_out(unlike, "round 0, prepare")
        sent["prepare_bytes_up"] = (course.spent() - before).up
        return sent

    def _send_init_broadcast(self, numbers: list[int]) -> Requests[int]:
        """Send the method's message to clients. Returns the number of bytes sent."""
        before = self.course.spent()
        asked = dict.fromkeys(numbers, (self.init_broadcast,))
        yield from self.course.tell(INIT_BROADCAST, 0, asked)
        return (self.course.spent() - before).down
