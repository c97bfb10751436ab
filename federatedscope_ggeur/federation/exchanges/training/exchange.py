"""Rounds of training: clients train, and the method combines their updates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation.client import TrainingSet
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.sampling import (
    capped,
    draw_clients,
    in_client_order,
)
from federatedscope_ggeur.federation.server import Server
from federatedscope_ggeur.federation.settings import Pull
from federatedscope_ggeur.federation.wire import schema
from federatedscope_ggeur.methods import (
    METHODS,
    BatchedHooks,
    LocalContext,
    LocalOutcome,
    Method,
    Update,
)
from federatedscope_ggeur.methods.base import Tensors
from federatedscope_ggeur.models import CPU, Model, negative_variance, trainable_part
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.rng import derive_seed
from federatedscope_ggeur.settings import (
    Objection,
    Objections,
    Section,
    key,
    one_of,
    positive_share,
    whole,
)

from ..base import (
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    refusal,
    register_exchange,
    require_tensors,
)
from .batched.fit import Member, fit_group, groups
from .batched.heads import batched_head
from .fit import FitResult, fit, in_parts, mean_running_statistics, moved, training_sets
from .messages import Broadcast, ClientUpdate
from .screening import (
    DivergenceWatch,
    largest,
    not_finite,
    overflow_of,
    remedy,
    update_findings,
)

#: Where clients of an embedded run may train at once.
BATCHED = ("gpu", "always", "never")


class TrainingKeys(Section):
    """The settings of training rounds."""

    base_method: str = key(
        next(iter(METHODS)),
        "Federated method that GGEUR is combined with.",
        METHODS.rule,
        shared=True,
    )
    mlp_hidden_dim: int = key(
        0,
        "Hidden units of an MLP head; 0: a linear head. Dropout is model.dropout: 0.5 "
        "by FS's default, 0 in the example configs.",
        whole(0, maximum=2**16),
        shared=True,
    )
    max_share: float = key(
        1.0,
        "The largest share that one client has in an average of updates; 1: no limit. "
        "The log names the largest share.",
        positive_share,
    )
    batched: str = key(
        BATCHED[0],
        "Where all clients of a round train at once, in one batched step: on a GPU, "
        "always, or never. The results differ from those of clients that train one "
        "after the other by rounding alone. It concerns linear and MLP heads on the "
        "embedded engine, and methods that have a batched form.",
        one_of(*BATCHED),
    )
    workers: int = key(
        0,
        "Processes that train and score the clients of an embedded run. The results "
        "are the same for any number. 0: one process in Python; in commands as many "
        "as there are cores if that is faster.",
        whole(0, maximum=1024),
    )


def objections(run: Demands) -> Objections:
    """The settings that cannot go with a number of mini-batches, or of processes."""
    if run.batch_or_epoch == "batch":
        why = (
            "since rows are sorted by class, and only the first classes would be "
            "trained"
        )
        yield Objection("batch_or_epoch", {"shuffle": [True]}, why)
    if run.of(TrainingKeys).workers > 1:
        why = "which trains clients in other processes than their own"
        yield Objection("workers", {"batched": ["gpu", "never"]}, why)


logger = get_logger(__name__)


class RoundSettings(TrainingKeys):
    """The settings of a round of training.

    Attributes
    ----------
    sample_client_num : int
        The number of clients drawn in each round.
    pull : Pull, optional
        Added to what the method does in training.
    """

    sample_client_num: int = 0
    pull: Pull | None = None

    def wants_batched(self, device: torch.device) -> bool:
        """Whether clients shall train at once on this device."""
        return self.batched == "always" or (
            self.batched == "gpu" and device.type == "cuda"
        )


class TrainingClient(ClientSide):
    """Trains one client's model in a round."""

    def train(self, broadcast: Broadcast) -> ClientUpdate:
        """Train for one round from the broadcast weights, and keep the method's state.

        Raises
        ------
        GGEURError
            Training diverged: values are NaN, infinite, or too large to be sent.
        """
        client, number = self.client, broadcast.round_number
        (rows,) = training_sets([client], number)
        context = self.context(broadcast)
        hooks = client.task.method.local(context)
        pull = client.settings.of(RoundSettings).pull
        if pull is not None:
            hooks = pull.added(hooks, client.model, client.space)
        with client.model.of_client(context.counts):
            start = broadcast.params if hooks.start is None else hooks.start
            features, labels = rows.features, rows.labels
            settings, seed = client.training(number), self.seed(number)
            result = fit(
                client.model, start, features, labels, settings, seed, hooks, rows.order
            )
        return self.update(number, rows, result, hooks.finish)

    def context(self, broadcast: Broadcast) -> LocalContext:
        """The method's context of a round, on the device of training."""
        client, number = self.client, broadcast.round_number
        context = client.context(number, broadcast.params, broadcast.download)
        return moved(context, client.settings.training.device)

    def seed(self, round_number: int) -> int:
        """The seed of `fit`."""
        client = self.client
        return derive_seed(client.task.seed, client.number, "fit", round_number)

    def update(
        self,
        number: int,
        rows: TrainingSet,
        result: FitResult,
        finish: Callable[[LocalOutcome], tuple[Tensors, Tensors]] | None,
    ) -> ClientUpdate:
        """End a round's training: keep the method's state, and make the answer.

        Raises
        ------
        GGEURError
            Training diverged.
        """
        client, method = self.client, self.client.task.method
        self._check(number, not_finite(result.weights, {}, result.largest))
        upload: Tensors = {}
        if finish is not None:
            trained = result.weights.to(client.settings.training.device)
            params = trainable_part(client.model, trained)
            outcome = LocalOutcome(params, result.steps, *rows.gathered(), trained)
            upload, state = finish(outcome)
            # The server checks this, too, but only the client knows the remedy.
            problem = method.upload_problem(upload, client.model)
            self._check(
                number, not_finite(result.weights, {**upload, **state}) or problem
            )
            upload = {name: t.cpu() for name, t in upload.items()}
            # The set may use memory that other clients use next.
            kept = {n: t.detach().to(CPU, copy=True) for n, t in state.items()}
            client.keep_state(number, kept)
        weights = result.weights if method.federated else result.weights[:0]
        return ClientUpdate(client.number, number, weights, result.steps, upload)

    def _check(self, round_number: int, problem: str) -> None:
        if problem:
            client = self.client
            advice = remedy(client.task.method, client.settings.training.optimizer.lr)
            raise GGEURError(
                f"client {client.number}, round {round_number}: training diverged, "
                f"{problem}; {advice}"
            )


def unbatched_because(model: Model, method: Method, settings: RoundSettings) -> str:
    """Why clients of this model and method cannot train at once; "" if they can."""
    if not method.batched:
        return f"{method.name} has no batched form"
    if batched_head(model) is None:
        return f"a {type(model).__name__} has no batched form"
    if settings.pull is not None:
        return f"{setting(settings.pull.field)} has no batched form"
    if not hasattr(Tensor, "untyped_storage"):
        return f"it needs torch 2, and this is {torch.__version__}"
    return ""


def train_group(
    sides: Sequence[TrainingClient], parts: Sequence[Sequence[Broadcast]]
) -> list[ClientUpdate] | None:
    """Train several clients of one process at once, each from the same broadcast.

    Returns
    -------
    list of ClientUpdate, or None
        What `TrainingClient.train` makes, in the order of `sides`, up to rounding. None
        if the settings do not ask for it, or something has no batched form.

    Raises
    ------
    GGEURError
        The error of the first client whose training diverged.
    """
    first = sides[0].client
    settings, training = first.settings.of(RoundSettings), first.settings.training
    wanted = settings.wants_batched(training.device)
    if not wanted or unbatched_because(first.model, first.task.method, settings):
        return None
    broadcast = parts[0][0]
    if any(own is not broadcast for (own,) in parts):
        return None
    updates: list[ClientUpdate] = []
    for clients in in_parts([side.client for side in sides]):
        part = sides[len(updates) : len(updates) + len(clients)]
        updates += _trained_at_once(part, broadcast)
    return updates


def _trained_at_once(
    sides: Sequence[TrainingClient], broadcast: Broadcast
) -> list[ClientUpdate]:
    number, first = broadcast.round_number, sides[0].client
    start = broadcast.params.to(first.settings.training.device)
    sets = training_sets([side.client for side in sides], number)
    members = [
        Member(rows, side.client.training(number), side.seed(number))
        for side, rows in zip(sides, sets)
    ]
    ends: list = [None] * len(sides)
    for places in groups(members):
        hooks = BatchedHooks()
        if first.task.method.changes_training:
            contexts = [sides[k].context(broadcast) for k in places]
            hooks = first.task.method.local_batched(contexts)
        own = [members[k] for k in places]
        results = fit_group(first.model, start, own, hooks)
        finish = hooks.finish or [None] * len(places)
        for k, result, end in zip(places, results, finish):
            ends[k] = result, end
    return [
        side.update(number, rows, *end) for side, rows, end in zip(sides, sets, ends)
    ]


def train_broadcast(server: Server, number: int) -> Broadcast:
    """The weights from which a round trains, for clients."""
    return _broadcast(server, number, server.params, train=True)


def model_broadcast(server: Server, number: int) -> Broadcast:
    """The global model on raw embeddings, for clients."""
    return _broadcast(server, number, server.raw_params)


def head_broadcast(server: Server, number: int, closed_form: bool = False) -> Broadcast:
    """A head on raw embeddings for clients to score or keep.

    See `Server.head_params`.
    """
    return _broadcast(server, number, server.head_params(closed_form))


def own_broadcast(server: Server, number: int) -> Broadcast:
    """The weights from which a client makes its own model, to score or keep.

    The client must know the space of training.
    """
    return _broadcast(server, number, server.scored_params)


def _broadcast(
    server: Server, number: int, params: Tensor, train: bool = False
) -> Broadcast:
    method = server.task.method
    params = params if method.federated else params[:0]
    if not server.trains:
        return Broadcast(number, params)  # the method has no state
    download = method.download if train else method.scoring_download
    return Broadcast(number, params, download(server.method_state))


def _validate(
    exchange: TrainingExchange, request: Request, update: ClientUpdate
) -> None:
    """Require an update of this round, from a drawn client, with the method's tensors.

    Running variances must not be negative.
    """
    server, k = exchange.server, update.client
    method, model, number = server.task.method, server.model, request.round_number
    if update.round_number != number or k not in request.parts:
        raise refusal(
            k,
            "round",
            f"an update of round {update.round_number} from a client that "
            f"{'was' if k in request.parts else 'was not'} drawn, in round {number}",
        )
    require_tensors(update.upload, method.upload_shapes(model), "upload", k)
    problem = method.upload_problem(update.upload, model)
    if problem:
        raise refusal(k, "upload", problem)
    negative = negative_variance(model, update.params)
    if negative:
        raise refusal(k, "params", f"'{negative}' has negative variances")


TRAIN = RequestKind(
    name="train",
    message="model_para",
    remembered=0,  # its state is in the `ClientStore`
    deadline="train",
    shared_parts=True,
    parts=(Broadcast,),
    respond=lambda side, broadcast: side.train(broadcast),
    respond_group=train_group,
    answer_message="model_para",
    answer=ClientUpdate,
    validate=_validate,
    largest=lambda exchange: schema.of_tensors(
        exchange.server.schema.num_parameters,
        exchange.server.task.method.upload_shapes(exchange.server.model),
    ),
)


@register_exchange("training")
class TrainingExchange(Exchange):
    """Draws clients in each round, lets them train, and takes the method's step.

    Attributes
    ----------
    divergence : DivergenceWatch
        Checks whether training has diverged.
    largest_weights : dict from client number to float
        The largest weight that each client sent in the last evaluated round.
    """

    KINDS = (TRAIN,)
    CLIENT = TrainingClient
    SETTINGS = TrainingKeys
    objections = staticmethod(objections)
    REVEALS = "each client's updates"

    def __init__(self, course):
        super().__init__(course)
        server = self.server
        rate = server.settings.training.optimizer.lr
        method, classes = server.task.method, server.task.num_classes
        self.divergence = DivergenceWatch(classes, method, rate)
        self.largest_weights: dict[int, float] = {}

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.trains

    def complete(self) -> Requests[None]:
        trained = self.server.trained(self.server.params)
        self.divergence.begin(trained, self.server.start_loss)
        yield from ()

    def sample(self, round_number: int, absent: Collection[int] = ()) -> list[int]:
        """Draw the clients that train in a round, ascending, without absent ones."""
        numbers = self.server.participants
        if absent:
            numbers = [k for k in numbers if k not in absent]
        wanted = self.server.settings.of(RoundSettings).sample_client_num
        seed = self.server.task.seed
        return draw_clients(numbers, wanted, seed, "sample", round_number)

    def round(self, number: int) -> Requests[dict[str, Any]]:
        course, server = self.course, self.server
        members = course.membership
        drawn = self.sample(number, members.absent.keys() | members.unprepared)
        data = train_broadcast(server, number).to_bytes()
        asked = dict.fromkeys(drawn, (data,))
        updates = yield from course.ask(
            TRAIN, number, asked, welcome=course.welcome_back
        )
        unlike = update_findings(updates, server.params, server.trained)
        refused = course.screen.refused("update", unlike)
        course.put_out(refused, f"round {number}, train")
        updates = [update for update in updates if update.client not in refused]
        clients = [update.client for update in updates]
        if server.evaluates(number):
            self.largest_weights = {
                u.client: largest(server.trained(u.params)) for u in updates
            }
        if updates:
            self.step(number, updates)
        else:
            logger.warning(
                "round %d: no client trained, so the head does not change", number
            )
        del updates  # a network's updates take much memory
        details = dict(server.task.method.figures(server.method_state))
        return {"clients": clients, "details": details or None}

    def step(self, round_number: int, updates: Iterable[ClientUpdate]) -> None:
        """Take the method's server step on the updates of a round, in client order.

        Raises
        ------
        GGEURError
            The step gives NaN or infinity.
        """
        server = self.server
        context = server.context(round_number)
        sent = in_client_order(updates)
        counts = {u.client: context.aggregation_weights[u.client] for u in sent}
        weights = capped(counts, server.settings.max_share)
        taken = [
            Update(u.client, weights[u.client], u.params, u.steps, u.upload)
            for u in sent
        ]
        model, method = server.model, server.task.method
        statistics = mean_running_statistics(model, server.params, taken)
        trained = taken
        if len(statistics):
            trained = [replace(u, params=server.trained(u.params)) for u in taken]
        after, server.method_state = method.step(
            server.trained(server.params), trained, server.method_state, context
        )
        server.params = torch.cat([after, statistics]) if len(statistics) else after
        problem = not_finite(server.params, server.method_state)
        if problem:
            advice = remedy(method, server.settings.training.optimizer.lr)
            raise GGEURError(
                f"round {round_number}: after the server's step {problem}: "
                f"{overflow_of(sent)}training diverged; {advice}"
            )

    def progress(self) -> dict[str, Any]:
        return self.divergence.state()

    def resume_progress(self, values: Mapping[str, Any]) -> None:
        self.divergence.load(values)
