"""Local training of a model, the same for every method and engine.

The rows on which clients train in a round, drawn where they are trained on.

Averages the running statistics of a network's normalisation layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation.client import Client, TrainingSet
from federatedscope_ggeur.federation.settings import TrainingSettings
from federatedscope_ggeur.geometry import AugmentedSet
from federatedscope_ggeur.machine import exact, free_memory, sent
from federatedscope_ggeur.methods import Batch, LocalContext, LocalHooks, Update
from federatedscope_ggeur.methods.base import Tensors, weighted_mean
from federatedscope_ggeur.models import (
    CPU,
    LinearHead,
    Model,
    add_autograd_gradient,
    bind_vector,
    is_bound,
    load_vector,
    num_buffers,
    trainable_part,
)
from federatedscope_ggeur.models.heads import draw_from
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.rng import derive_seed, torch_generator

# rows gathered at once: few enough for the cache, enough to spread the cost
_GATHER_ROWS = 256


class FitResult(NamedTuple):
    """The weights of shape (P + Q,), on the CPU, after `steps` mini-batches.

    `params` are the P trainable weights. `largest` is the largest absolute weight, if
    it is known.
    """

    params: Tensor
    steps: int
    weights: Tensor
    largest: float | None = None


def fit(
    model: Model,
    start: Tensor,
    features: Tensor,
    labels: Tensor,
    settings: TrainingSettings,
    seed: int,
    hooks: LocalHooks | None = None,
    rows: Tensor | None = None,
) -> FitResult:
    """Train a model from the weights `start`, with a new optimiser.

    Parameters
    ----------
    model : Model
        The model. It is left with the result's weights, in evaluation mode.
    start : Tensor of shape (P + Q,)
        The first weights; they are not changed. They and the set may lie on any device.
    features : Tensor of shape (n, D)
        Rows in the form that the model's `prepare` takes. With n = 0 nothing is
        trained, and the result is `start` after 0 steps. Images for which the device
        has too little memory stay where they are, and go there batch by batch.
    labels : Tensor of shape (n,), int64
    settings : TrainingSettings
    seed : int
        The seed for the order of rows, for dropout and for augmentation of images.
    hooks : LocalHooks, optional
        The terms that a method adds to cross-entropy. Their tensors lie on the
        settings' device.
    rows : Tensor of shape (m,), int64, optional
        Train on the rows of these numbers, in this order. By default, on all rows.
    """
    hooks, device = hooks or LocalHooks(), settings.device
    start = start.detach().to(device)
    labels = labels.to(device)
    features = near(features, device) if model.takes_images else features.to(device)
    if rows is None:
        rows = torch.arange(labels.shape[0], device=features.device)
    chunks = _chunks(rows, settings, torch_generator(seed, "order"))
    is_plain = not hooks.change_steps and settings.grad_clip <= 0
    if isinstance(model, LinearHead) and is_plain:
        return _fit_linear(model, start, features, labels, chunks, settings)
    weights = start.clone()
    bind_vector(model, weights)
    model.train()
    # The optimiser does not touch running statistics: batches alone move them.
    params = trainable_part(model, weights)
    draws = torch_generator(seed, "dropout")
    draws_elsewhere = draw_from(model, draws) or model.takes_images
    step = _TrainingStep(model, params, settings, hooks, draws)
    augmentation = torch_generator(seed, "augment") if model.takes_images else None
    size, steps = settings.batch_size, 0
    hooked = model.stages_hooked(hooks.stage)
    own_draws = _own_draws(seed) if draws_elsewhere else nullcontext()
    may_leave = step.may_leave_tensors
    alone = torch.no_grad() if may_leave else torch.inference_mode()
    with own_draws, hooked, exact(device, model.precision == "tf32"), alone:
        for batch in (part for chunk in chunks for part in chunk.split(size)):
            if len(batch) < model.least_batch:
                continue
            x = features.index_select(0, batch)
            if x.device.type != device.type:  # the set is too large for it
                x, batch = sent(x, device), sent(batch, device)
            y = labels.index_select(0, batch)
            step(model.prepare(x, augmentation), y)
            steps += 1
    model.eval()
    draw_from(model, None)  # copies of the model hold no generator
    weights = weights.cpu()
    return FitResult(trainable_part(model, weights), steps, weights)


def _fit_linear(
    head: LinearHead,
    start: Tensor,
    features: Tensor,
    labels: Tensor,
    chunks: Iterator[Tensor],
    settings: TrainingSettings,
) -> FitResult:
    """`fit` of a linear head by cross-entropy alone. Nothing is drawn in a step."""
    bench = _BENCHES.get(head)
    if bench is None or not is_bound(head, bench.weights):
        bench = _BENCHES[head] = _Bench(head, start)
    bench.weights.copy_(start)
    optimizer = settings.optimizer.build(bench.weights, bench.gradient)
    step, steps = optimizer.step, 0
    with torch.inference_mode():
        for rows in chunks:
            bench.gather(features, labels, rows)
            for add in bench.batches(head, settings.batch_size, optimizer.beta):
                add()
                step()
                steps += 1
    if head.training:
        head.eval()
    weights = bench.weights.to(CPU, copy=True)
    return FitResult(weights, steps, weights)


class _Bench:
    """The memory in which `_fit_linear` trains a head.

    The next fit uses it again: making it takes as long as several mini-batches.
    """

    def __init__(self, head: LinearHead, start: Tensor):
        self.weights, self.gradient = start.clone(), torch.zeros_like(start)
        bind_vector(head, self.weights)
        self._features, self._labels, self._rows = torch.empty(0), torch.empty(0), 0
        self._made_for: tuple[int, float] | None = None

    def gather(self, features: Tensor, labels: Tensor, rows: Tensor) -> None:
        """Take these rows in place of those before."""
        self._rows = n = rows.shape[0]
        if n > self._labels.shape[0]:
            self._features = features.new_empty(n, features.shape[1])
            self._labels, self._made_for = labels.new_empty(n), None
        torch.index_select(features, 0, rows, out=self._features[:n])
        torch.index_select(labels, 0, rows, out=self._labels[:n])

    def batches(self, head: LinearHead, size: int, beta: float) -> list:
        """For each mini-batch of the rows, a function that adds its gradient."""
        if self._made_for != (size, beta):
            self._made_for = size, beta
            self._gradient = head.gradient_accumulator(self.gradient, beta)
            ends = range(size, self._labels.shape[0] + 1, size)
            self._whole = [self._batch(end - size, end) for end in ends]
        whole, rest = divmod(self._rows, size)
        last = [self._batch(self._rows - rest, self._rows)] if rest else []
        return self._whole[:whole] + last

    def _batch(self, first: int, last: int) -> Callable[[], None]:
        return self._gradient.of(self._features[first:last], self._labels[first:last])


_BENCHES: WeakKeyDictionary[LinearHead, _Bench] = WeakKeyDictionary()


def near(rows: Tensor, device: torch.device) -> Tensor:
    """A set of images on `device`, or where it is if there is little memory for it.

    It may take half of what is free there; training itself needs the rest.
    """
    free = free_memory(device) if rows.device == CPU else None
    if free is not None and rows.numel() * rows.element_size() > free / 2:
        return rows
    return rows.to(device)


@contextmanager
def _own_draws(seed: int) -> Iterator[None]:
    """A context for layers that draw from torch's global CPU generator, as nn.Dropout.

    It is seeded, and restored afterwards. (torch.manual_seed would also set the GPU's.)
    `torch.random.fork_rng` would also ask for GPUs, which makes a round on 50 rows a
    tenth slower.
    """
    state = torch.random.get_rng_state()
    torch.default_generator.manual_seed(derive_seed(seed, "dropout"))
    try:
        yield
    finally:
        torch.random.set_rng_state(state)


def _chunks(
    chosen: Tensor, settings: TrainingSettings, order: torch.Generator
) -> Iterator[Tensor]:
    """The row numbers of a round's mini-batches. A chunk holds several batches."""
    n, size = chosen.shape[0], settings.batch_size
    usable, left = settings.usable(n), settings.batches(n)
    gathered = max(1, _GATHER_ROWS // size) * size
    while left > 0:
        rows = chosen
        if settings.shuffle:
            drawn = torch.randperm(n, generator=order)
            rows = chosen.index_select(0, drawn.to(chosen.device))
        for first in range(0, usable, gathered):
            chunk = rows[first : min(first + gathered, first + left * size, usable)]
            yield chunk
            left -= -(-chunk.shape[0] // size)
            if left == 0:
                return


class _TrainingStep:
    """Runs one mini-batch: gradient, the method's corrections, clipping, update."""

    def __init__(
        self,
        model,
        params,
        settings: TrainingSettings,
        hooks: LocalHooks,
        draws: torch.Generator,
    ):
        self.model, self.params, self.hooks, self.draws = model, params, hooks, draws
        optimizer = settings.optimizer.build(params, torch.zeros_like(params))
        self.optimizer, self.grad_clip = optimizer, settings.grad_clip
        self.apart = self.grad_clip > 0 or hooks.perturb is not None
        if self.apart:
            # The norm is that of the gradient alone, so momentum is added later. The
            # same holds for a gradient that only shows where to take the one that
            # counts.
            self.gradient, self.beta = torch.zeros_like(params), 0.0
        else:
            self.gradient, self.beta = optimizer.buffer, optimizer.beta
        self.plain = hooks.objective is None and hooks.loss_term is None
        # Cross-entropy stays written by hand beside a loss term. That is faster, and a
        # term of weight zero changes no bit.
        by_hand = hooks.objective is None and not model.uses_autograd
        self.accumulates = self.plain or by_hand
        self.autograd_beta = 1.0 if by_hand else self.beta
        # Autograd refuses tensors made in inference mode, and a hook may keep tensors
        # for a later round.
        called = (hooks.transform, hooks.add_correction, hooks.perturb)
        hooked = any(hook is not None for hook in called)
        self.may_leave_tensors = model.uses_autograd or not self.plain or hooked
        self.accumulate = model.gradient_accumulator(self.gradient, self.beta)
        self.take: Callable[[Tensor, Tensor], None] = self._take_gradient
        if hooks.perturb is not None:
            self.take = partial(self._take_gradient_nearby, hooks.perturb)
        elif self.plain:
            self.take = self.accumulate

    def __call__(self, features: Tensor, labels: Tensor) -> None:
        if self.hooks.transform is not None:
            features = self.hooks.transform(features, labels)
        self.take(features, labels)
        if self.hooks.add_correction is not None:
            self.hooks.add_correction(self.params, self.gradient)
        if self.apart:
            buffer = self.optimizer.buffer
            buffer.mul_(self.optimizer.beta).add_(self._clipped(self.gradient))
        self.optimizer.step()

    def _take_gradient_nearby(self, perturb, features: Tensor, labels: Tensor) -> None:
        elsewhere, own = torch.random.get_rng_state(), self.draws.get_state()
        self._take_gradient(features, labels)
        kept = self.params.clone()
        self.params.add_(perturb(self.params, self.gradient))
        torch.random.set_rng_state(elsewhere)  # the same units are dropped
        self.draws.set_state(own)
        with self.model.frozen_statistics():
            self._take_gradient(features, labels)
        self.params.copy_(kept)

    def _clipped(self, gradient: Tensor) -> Tensor:
        if self.grad_clip <= 0:
            return gradient
        return gradient * (self.grad_clip / (gradient.norm() + 1e-6)).clamp(max=1.0)

    def _take_gradient(self, features: Tensor, labels: Tensor) -> None:
        if self.accumulates:
            self.accumulate(features, labels)
        if not self.plain:
            with torch.enable_grad():
                loss = self._loss(features, labels)
            add_autograd_gradient(self.model, loss, self.gradient, self.autograd_beta)

    def _loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """The part of the loss whose gradient autograd computes."""
        hooks, model, loss = self.hooks, self.model, torch.zeros(())
        if hooks.objective is not None:
            loss = hooks.objective(model, features, labels)
        if hooks.loss_term is not None:
            representation = model.represent(features)
            logits = model.classify(representation)
            batch = Batch(features, labels, representation, logits)
            term = hooks.loss_term(model, batch)
            loss = term if hooks.objective is None else loss + term
            if hooks.objective is None and not self.accumulates:
                loss = loss + model.loss(logits, labels)
        return loss


def moved(context: LocalContext, device: torch.device) -> LocalContext:
    """A copy of the context whose tensors are on `device`."""

    def there(tensors: Tensors) -> Tensors:
        return {name: tensor.to(device) for name, tensor in tensors.items()}

    if device == CPU:
        return context
    weights = context.weights.to(device)
    return replace(
        context,
        broadcast=trainable_part(context.model, weights),
        weights=weights,
        download=there(context.download),
        init_broadcast=there(context.init_broadcast),
        state=there(context.state),
        counts=context.counts.to(device),
    )


logger = get_logger(__name__)


def training_sets(clients: Sequence[Client], round_number: int) -> list[TrainingSet]:
    """The sets of clients that share their memory budget, for one round.

    Sets that are the same in each round are kept, as far as the budget goes. The others
    lie in memory that the next call uses again.

    Raises
    ------
    GGEURError
        A client has no set yet, or the sets do not fit the memory.
    """
    sets = [_held(client) for client in clients]
    drawn = [k for k, one in enumerate(sets) if one is None]
    kept = [k for k in drawn if _reserves(clients[k])]
    others = sorted(set(drawn) - set(kept))
    of_kept, of_others = ([clients[k] for k in places] for places in (kept, others))
    for k, made in zip(kept, _drawn(of_kept, round_number, keep=True)):
        clients[k].kept_set = sets[k] = made
    for k, made in zip(others, _drawn(of_others, round_number, keep=False)):
        sets[k] = made
    return [one for one in sets if one is not None]


def in_parts(clients: Sequence[Client]) -> Iterator[list[Client]]:
    """The clients in parts whose sets fit the memory budget together."""
    part: list[Client] = []
    size = 0
    for client in clients:
        recipe = client.recipe
        more = 0 if recipe is None or _held(client) else recipe.nbytes
        if part and size + more > client.memory.left:
            yield part
            part, size = [], 0
        part.append(client)
        size += more
    if part:
        yield part


def _held(client: Client) -> TrainingSet | None:
    """The client's set, if nothing is to be drawn for it."""
    if client.kept_set is not None:
        return client.kept_set
    recipe, device = client.recipe, client.settings.training.device
    if recipe is None:
        raise GGEURError(
            f"client {client.number} was asked to train before round 0 was over"
        )
    if client.model.takes_images:  # nothing to draw, so no copy either
        client.kept_set = _images(client, device)
    elif device == CPU and (order := recipe.order) is not None:
        client.kept_set = TrainingSet(recipe.features, recipe.own_labels, order)
    return client.kept_set


def _images(client: Client, device: torch.device) -> TrainingSet:
    images = near(client.features, device)
    if images.device.type != device.type:
        logger.warning(
            "client %d: its %.1f GB of images would fill more than half of the free "
            "memory of %s, so they stay in main memory, and every batch is copied; "
            "lower %s, or free the GPU",
            client.number,
            images.numel() * images.element_size() / 1e9,
            device,
            setting("encoder.image_size"),
        )
    return TrainingSet(images, client.labels.to(device))


def _reserves(client: Client) -> bool:
    """Whether the client's set is kept; its bytes are reserved then."""
    recipe = _recipe(client)
    return recipe.same_every_round and client.memory.reserve(recipe.nbytes)


def _drawn(
    clients: Sequence[Client], round_number: int, keep: bool
) -> Iterator[TrainingSet]:
    """Draw the clients' sets, one below the other in one block of memory."""
    if not clients:
        return
    recipes, settings = [_recipe(client) for client in clients], clients[0].settings
    rows, dim = sum(one.rows for one in recipes), recipes[0].features.shape[1]
    device = settings.training.device
    try:
        if keep:
            block = torch.empty(rows, dim, dtype=torch.float32, device=device)
        else:
            block = clients[0].memory.scratch(rows, dim, device)
        labels, start = torch.empty(rows, dtype=torch.int64, device=device), 0
        for recipe in recipes:
            place = slice(start, start + recipe.rows)
            yield _into(recipe, round_number, block[place], labels[place])
            start += recipe.rows
    except (MemoryError, RuntimeError) as error:
        names = f"client {clients[0].number}: the augmented set"
        if len(clients) > 1:
            names = f"{len(clients)} clients: the augmented sets"
        gigabytes = sum(one.nbytes for one in recipes) / 1e9
        raise GGEURError(
            f"{names} of {rows} rows ({gigabytes:.1f} GB) cannot be made on the "
            f"{device.type} ({str(error).splitlines()[0]:.120}); lower "
            f"{setting('step1_size')} and {setting('step2_size')}, or the size "
            "settings in their place"
        ) from error


def _into(
    recipe: AugmentedSet, round_number: int, features: Tensor, labels: Tensor
) -> TrainingSet:
    _, drawn = recipe.draw(round_number, out=features)
    return TrainingSet(features, labels.copy_(drawn))


def _recipe(client: Client) -> AugmentedSet:
    assert client.recipe is not None  # `_held` refuses others
    return client.recipe


def mean_running_statistics(
    model: Model, params: Tensor, updates: Sequence[Update]
) -> Tensor:
    """The mean of clients' running statistics in a round: Tensor of shape (Q,).

    The mean is loaded into `model`, for methods that run the model on the server. It is
    the same for every method, since a step beyond the mean could make variances
    negative.

    Parameters
    ----------
    model : Model
    params : Tensor of shape (P + Q,)
        The global model's weights before the round. Their running statistics are kept
        if no client has data, or if weights stay with the clients.
    updates : sequence of Update
        The clients' updates, in client order, with weights [P + Q].
    """
    size = num_buffers(model)
    if not size:
        return params[:0]
    trained, before = params[:-size], params[-size:]
    parts = [replace(u, params=u.params[-size:]) for u in updates if len(u.params)]
    mean = weighted_mean(before, parts)
    load_vector(model, torch.cat([trained, mean]))
    return mean
