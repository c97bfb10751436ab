"""Local training of a model, the same for every method and engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from federatedscope_ggeur.federation.arithmetic import exact
from federatedscope_ggeur.federation.training_settings import TrainingSettings
from federatedscope_ggeur.methods import Batch, LocalContext, LocalHooks
from federatedscope_ggeur.methods.base import Tensors
from federatedscope_ggeur.models import (
    CPU,
    Accumulator,
    Model,
    add_autograd_gradient,
    bind_vector,
    is_bound,
    trainable_part,
)
from federatedscope_ggeur.rng import derive_seed, torch_generator

# rows gathered at once: few enough for the cache, enough to spread the cost
_GATHER_ROWS = 128


@dataclass(frozen=True)
class FitResult:
    """The weights of shape (P + Q,), on the CPU, after `steps` mini-batches.

    `params` are the P trainable weights.
    """

    params: Tensor
    steps: int
    weights: Tensor


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
        trained, and the result is `start` after 0 steps.
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
    start, features, labels = (t.detach().to(device) for t in (start, features, labels))
    batches = _batches(features, labels, rows, settings, torch_generator(seed, "order"))
    if not (model.uses_autograd or hooks.change_steps or settings.grad_clip > 0):
        return _fit_by_hand(model, start, batches, settings)
    weights = start.clone()
    bind_vector(model, weights)
    model.train()
    # The optimiser does not touch running statistics: batches alone move them.
    params = trainable_part(model, weights)
    step = _TrainingStep(model, params, settings, hooks)
    augmentation = torch_generator(seed, "augment") if model.takes_images else None
    steps = 0
    # nn.Dropout draws from torch's global generator, which is restored afterwards.
    # (torch.manual_seed would also set the GPU's, which is not restored.)
    hooked = model.stages_hooked(hooks.stage)
    with _own_draws(), hooked, exact(device):
        torch.default_generator.manual_seed(derive_seed(seed, "dropout"))
        with torch.no_grad() if step.may_leave_tensors else torch.inference_mode():
            for x, y in batches:
                if len(y) < model.least_batch:
                    continue
                step(model.prepare(x, augmentation), y)
                steps += 1
    model.eval()
    weights = weights.cpu()
    return FitResult(trainable_part(model, weights), steps, weights)


def _fit_by_hand(
    model: Model,
    start: Tensor,
    batches: Iterator[tuple[Tensor, Tensor]],
    settings: TrainingSettings,
) -> FitResult:
    """`fit` where each step is the model's own gradient, and nothing is drawn."""
    bound = _BOUND.get(model)
    if bound is None or not is_bound(model, bound.weights):
        bound = _BOUND[model] = _Bound(model, start)
    bound.weights.copy_(start)
    optimizer = settings.optimizer.build(bound.params, bound.gradient)
    accumulate = bound.accumulator(model, optimizer.beta)
    steps = 0
    with torch.inference_mode():
        for x, y in batches:
            accumulate(model.prepare(x), y)
            optimizer.step()
            steps += 1
    if model.training:
        model.eval()
    weights = bound.weights.to(CPU, copy=True)
    return FitResult(trainable_part(model, weights), steps, weights)


class _Bound:
    """The memory in which `_fit_by_hand` trains a model.

    The next fit uses it again: making it takes as long as several mini-batches.
    """

    def __init__(self, model: Model, start: Tensor):
        self.weights = start.clone()
        bind_vector(model, self.weights)
        self.params = trainable_part(model, self.weights)
        self.gradient = torch.zeros_like(self.params)
        self._accumulators: dict[float, Accumulator] = {}

    def accumulator(self, model: Model, beta: float) -> Accumulator:
        if beta not in self._accumulators:
            made = model.gradient_accumulator(self.gradient, beta)
            self._accumulators[beta] = made
        return self._accumulators[beta]


_BOUND: WeakKeyDictionary[Model, _Bound] = WeakKeyDictionary()


@contextmanager
def _own_draws() -> Iterator[None]:
    """A context whose draws do not change torch's CPU generator for code after it.

    `torch.random.fork_rng` would also ask for GPUs, which makes a round on 50 rows a
    tenth slower.
    """
    state = torch.random.get_rng_state()
    try:
        yield
    finally:
        torch.random.set_rng_state(state)


def _batches(
    features: Tensor,
    labels: Tensor,
    chosen: Tensor | None,
    settings: TrainingSettings,
    order: torch.Generator,
) -> Iterator[tuple[Tensor, Tensor]]:
    n = len(features) if chosen is None else len(chosen)
    size = settings.batch_size
    usable, left = settings.usable(n), settings.batches(n)
    gathered = max(1, _GATHER_ROWS // size) * size
    while left > 0:
        rows = chosen
        if settings.shuffle:
            rows = torch.randperm(n, generator=order).to(features.device)
            rows = rows if chosen is None else chosen[rows]
        for first in range(0, usable, gathered):
            last = min(first + gathered, usable)
            if rows is None:
                x, y = features[first:last], labels[first:last]
            else:
                x = features.index_select(0, rows[first:last])
                y = labels.index_select(0, rows[first:last])
            for batch in zip(x.split(size), y.split(size)):
                if left == 0:
                    return
                left -= 1
                yield batch


class _TrainingStep:
    """Runs one mini-batch: gradient, the method's corrections, clipping, update."""

    def __init__(self, model, params, settings: TrainingSettings, hooks: LocalHooks):
        self.model, self.params, self.hooks = model, params, hooks
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
        draws = torch.random.get_rng_state()
        self._take_gradient(features, labels)
        kept = self.params.clone()
        self.params.add_(perturb(self.params, self.gradient))
        torch.random.set_rng_state(draws)  # the same units are dropped
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
