"""Rounds of training: clients train, and the method combines their updates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation.arithmetic import largest
from federatedscope_ggeur.federation.client import TrainingSet
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import (
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    refusal,
    register_exchange,
    require_tensors,
)
from federatedscope_ggeur.federation.exchanges.training import keys
from federatedscope_ggeur.federation.exchanges.training.divergence import (
    DivergenceWatch,
    not_finite,
    overflow_of,
    remedy,
)
from federatedscope_ggeur.federation.exchanges.training.fit import (
    fit,
    moved,
    near,
)
from federatedscope_ggeur.federation.exchanges.training.messages import (
    Broadcast,
    ClientUpdate,
)
from federatedscope_ggeur.federation.exchanges.training.running_statistics import (
    mean_running_statistics,
)
from federatedscope_ggeur.federation.exchanges.training.screening import update_findings
from federatedscope_ggeur.federation.sampling import draw_clients, in_client_order
from federatedscope_ggeur.federation.server import Server
from federatedscope_ggeur.federation.shares import capped
from federatedscope_ggeur.federation.text import TextPull
from federatedscope_ggeur.federation.wire import limits
from federatedscope_ggeur.methods import LocalOutcome, Update
from federatedscope_ggeur.methods.base import Tensors
from federatedscope_ggeur.models import CPU, negative_variance, trainable_part
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.rng import derive_seed

logger = get_logger(__name__)


@dataclass(frozen=True)
class RoundSettings:
    """The settings of a round of training.

    Attributes
    ----------
    sample_client_num : int
        The number of clients drawn in each round.
    text_pull : TextPull, optional
        Pulls training towards the zero-shot head.
    """

    sample_client_num: int
    text_pull: TextPull | None = None


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
        settings, method = client.settings, client.task.method
        rows = self._training_set(number)
        context = client.context(number, broadcast.params, broadcast.download)
        hooks = method.local(moved(context, settings.training.device))
        pull = settings.of(RoundSettings).text_pull
        if pull is not None:
            hooks = pull.added(hooks, client.model, client.space)
        seed = derive_seed(client.task.seed, client.number, "fit", number)
        with client.model.of_client(context.counts):
            result = fit(
                client.model,
                broadcast.params if hooks.start is None else hooks.start,
                rows.features,
                rows.labels,
                client.training(number),
                seed,
                hooks,
                rows.order,
            )
        self._check(number, not_finite(result.weights, {}))
        upload: Tensors = {}
        if hooks.finish is not None:
            trained = result.weights.to(settings.training.device)
            params = trainable_part(client.model, trained)
            outcome = LocalOutcome(params, result.steps, *rows.gathered(), trained)
            upload, state = hooks.finish(outcome)
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

    def _training_set(self, round_number: int) -> TrainingSet:
        client, recipe = self.client, self.client.recipe
        if recipe is None:
            raise GGEURError(
                f"client {client.number} was asked to train before round 0 was over"
            )
        if client.kept_set is not None:
            return client.kept_set
        if client.model.takes_images:  # nothing to draw, so no copy either
            client.kept_set = self._images()
            return client.kept_set
        memory, on_cpu = client.memory, client.settings.training.device == CPU
        order = recipe.order if on_cpu else None
        if order is not None:
            client.kept_set = TrainingSet(recipe.features, recipe.own_labels, order)
            return client.kept_set
        try:
            if recipe.same_every_round and memory.reserve(recipe.nbytes):
                client.kept_set = self._on_device(*recipe.draw(round_number))
                return client.kept_set
            scratch = memory.scratch(recipe.rows, client.features.shape[1])
            return self._on_device(*recipe.draw(round_number, out=scratch))
        except (MemoryError, RuntimeError) as error:
            raise GGEURError(
                f"client {client.number}: the augmented set of {recipe.rows} rows "
                f"({recipe.nbytes / 1e9:.1f} GB) cannot be made; lower "
                f"{setting('step1_size')} and {setting('step2_size')}, or the size "
                "settings in their place"
            ) from error

    def _images(self) -> TrainingSet:
        client, device = self.client, self.client.settings.training.device
        images = near(client.features, device)
        if images.device.type != device.type:
            logger.warning(
                "client %d: its %.1f GB of images would fill more than half of the "
                "free memory of %s, so they stay in main memory, and every batch is "
                "copied; lower %s, or free the GPU",
                client.number,
                images.numel() * images.element_size() / 1e9,
                device,
                setting("encoder.image_size"),
            )
        return TrainingSet(images, client.labels.to(device))

    def _on_device(self, features: Tensor, labels: Tensor) -> TrainingSet:
        device = self.client.settings.training.device
        return TrainingSet(features.to(device), labels.to(device))


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
    negative = negative_variance(model, update.params) if len(update.params) else ""
    if negative:
        raise refusal(k, "params", f"'{negative}' has negative variances")


TRAIN = RequestKind(
    name="train",
    message="model_para",
    deadline="train",
    shared_parts=True,
    parts=(Broadcast,),
    respond=lambda side, broadcast: side.train(broadcast),
    answer_message="model_para",
    answer=ClientUpdate,
    validate=_validate,
    largest=lambda exchange: limits.of_tensors(
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
    KEYS = keys.KEYS
    objections = staticmethod(keys.objections)
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
        found = course.screen.refused("update", unlike)
        course.put_out(found, f"round {number}, train")
        updates = [update for update in updates if update.client not in found]
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
