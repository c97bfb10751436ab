"""`fit`: the local training of a head, the same for every method and engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.federation.optimizers import OptimizerSettings
from federatedscope_ggeur.methods.base import Batch, LocalHooks
from federatedscope_ggeur.models import CPU, Model, add_autograd_gradient, bind_vector
from federatedscope_ggeur.rng import derive_seed, torch_generator

# Rows gathered at once: few enough to stay in the cache, enough to spread the cost.
_GATHER_ROWS = 128


@dataclass(frozen=True)
class TrainingSettings:
    """Local training, in FederatedScope's terms.

    Attributes
    ----------
    optimizer : OptimizerSettings
    local_update_steps : int
        Epochs or mini-batches of a round, as `batch_or_epoch` says.
    batch_or_epoch : {"batch", "epoch"}
    batch_size : int
    shuffle : bool
    drop_last : bool
        Leave out an epoch's last, smaller batch.
    grad_clip : float
        Largest norm of a gradient; none if not positive.
    device : torch.device
        Where the arithmetic is done. Draws are the CPU's on any device.
    """

    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    local_update_steps: int = 1
    batch_or_epoch: str = "epoch"
    batch_size: int = 64
    shuffle: bool = True
    drop_last: bool = False
    grad_clip: float = -1.0
    device: torch.device = CPU

    def batches(self, rows: int) -> int:
        """The mini-batches of a round on so many rows."""
        per_epoch = -(-self.usable(rows) // self.batch_size)
        if self.batch_or_epoch == "epoch" or per_epoch == 0:
            return self.local_update_steps * per_epoch
        return self.local_update_steps

    def usable(self, rows: int) -> int:
        """Of so many rows those that an epoch takes."""
        return rows - rows % self.batch_size if self.drop_last else rows


@dataclass(frozen=True)
class FitResult:
    """Parameters of shape (P,), on the CPU, after `steps` mini-batches."""

    params: Tensor
    steps: int


def fit(
    model: Model,
    start: Tensor,
    features: Tensor,
    labels: Tensor,
    settings: TrainingSettings,
    seed: int,
    hooks: LocalHooks | None = None,
) -> FitResult:
    """Train a head on embeddings from `start`, with a fresh optimiser.

    Parameters
    ----------
    head : Head
        Its parameters become views of the result.
    start : Tensor of shape (P,)
        Left as it is. It and the set may lie on any device.
    features : Tensor of shape (n, D), float32
        With n = 0 nothing is trained and `start` comes back after 0 steps.
    labels : Tensor of shape (n,), int64
    settings : TrainingSettings
    seed : int
        Decides the order of rows and the dropout.
    hooks : LocalHooks, optional
        What a method adds to plain cross-entropy; its tensors lie on the settings'
        device.
    """
    hooks, device = hooks or LocalHooks(), settings.device
    params = start.detach().to(device, copy=True)
    features, labels = features.to(device), labels.to(device)
    bind_vector(model, params)
    model.train()
    optimizer = settings.optimizer.build(params)
    step = _TrainingStep(model, params, optimizer, settings.grad_clip, hooks)
    steps = 0
    # nn.Dropout draws from torch's global generator, which is put back afterwards.
    # (torch.manual_seed would reach for the GPU's as well, which is not.)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, "dropout"))
        order = torch_generator(seed, "order")
        with torch.no_grad() if step.may_leave_tensors else torch.inference_mode():
            for x, y in _batches(features, labels, settings, order):
                step(x, y)
                steps += 1
    model.eval()
    return FitResult(params.cpu(), steps)


def _batches(
    features: Tensor, labels: Tensor, settings: TrainingSettings, order: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    n, size = len(features), settings.batch_size
    usable, left = settings.usable(n), settings.batches(n)
    gathered = max(1, _GATHER_ROWS // size) * size
    while left > 0:
        rows = None
        if settings.shuffle:
            rows = torch.randperm(n, generator=order).to(features.device)
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
    """One mini-batch: gradient, the method's corrections, clipping, update."""

    def __init__(self, model, params, optimizer, grad_clip, hooks: LocalHooks):
        self.model, self.params, self.hooks = model, params, hooks
        self.optimizer, self.grad_clip = optimizer, grad_clip
        if grad_clip > 0:
            # The norm is of the gradient alone, so it cannot join the momentum yet.
            self.gradient, self.beta = torch.zeros_like(params), 0.0
        else:
            self.gradient, self.beta = optimizer.buffer, optimizer.beta
        self.plain = hooks.objective is None and hooks.loss_term is None
        # Cross-entropy by hand stays so beside a loss term: it is faster, and a term
        # of weight zero changes no bit.
        by_hand = hooks.objective is None and not model.uses_autograd
        self.accumulates = self.plain or by_hand
        self.autograd_beta = 1.0 if by_hand else self.beta
        # Tensors made in inference mode can never be used in autograd again; a hook
        # may keep some for a later round.
        hooked = hooks.transform is not None or hooks.add_correction is not None
        self.may_leave_tensors = model.uses_autograd or not self.plain or hooked
        self.accumulate = model.gradient_accumulator(self.gradient, self.beta)

    def __call__(self, features: Tensor, labels: Tensor) -> None:
        if self.hooks.transform is not None:
            features = self.hooks.transform(features, labels)
        if self.accumulates:
            self.accumulate(features, labels)
        if not self.plain:
            with torch.enable_grad():
                loss = self._loss(features, labels)
            add_autograd_gradient(self.model, loss, self.gradient, self.autograd_beta)
        if self.hooks.add_correction is not None:
            self.hooks.add_correction(self.params, self.gradient)
        if self.grad_clip > 0:
            scale = (self.grad_clip / (self.gradient.norm() + 1e-6)).clamp(max=1.0)
            buffer = self.optimizer.buffer
            buffer.mul_(self.optimizer.beta).add_(self.gradient * scale)
        self.optimizer.step()

    def _loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """What of the loss is left to autograd."""
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
                loss = loss + F.cross_entropy(logits, labels)
        return loss
