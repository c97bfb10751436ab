"""The inputs and outputs of a method's hooks, see `base.Method`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from federatedscope_ggeur.models import CPU, Model, StageHook
from federatedscope_ggeur.rng import torch_generator

Tensors = Mapping[str, Tensor]


class Optimizer(Protocol):
    """The local optimiser, as a method sees it: `torch.optim`'s, by name."""

    @property
    def type(self) -> str: ...
    @property
    def lr(self) -> float: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Batch:
    """What a loss term gets of one mini-batch, under the weights being trained.

    B is the number of rows, D' the width of the representation, C the number of
    classes.

    Attributes
    ----------
    features : Tensor of shape (B, D), float32
        The rows as the model takes them.
    labels : Tensor of shape (B,), int64
        Their classes.
    representation : Tensor of shape (B, D'), float32
        What `Model.represent` makes of them, with its gradient.
    logits : Tensor of shape (B, C), float32
        What `Model.classify` makes of that, with its gradient.
    """

    features: Tensor
    labels: Tensor
    representation: Tensor
    logits: Tensor


@dataclass(frozen=True)
class LocalOutcome:
    """What `LocalHooks.finish` gets of a client's training.

    Attributes
    ----------
    params : Tensor of shape (P,), float32
        The weights after training.
    steps : int
        Mini-batches taken.
    features : Tensor of shape (n, D), as data has them
        The rows that were trained on. Valid during the call only: copy what you keep.
    labels : Tensor of shape (n,), int64
        Their classes. Valid during the call only.
    weights : Tensor of shape (P + Q,), float32
        `params` with the running statistics behind them, for `Model.at`.
    """

    params: Tensor
    steps: int
    features: Tensor
    labels: Tensor
    weights: Tensor = None  # type: ignore[assignment]

    def __post_init__(self):
        if self.weights is None:
            object.__setattr__(self, "weights", self.params)


@dataclass(frozen=True)
class LocalHooks:
    """What a method adds to plain training in one round; None costs nothing.

    Attributes
    ----------
    transform : callable (features [B, D], labels [B]) -> features [B, D]
        Changes a batch before it is used. It must return a new tensor: the batch may
        be the training set itself.
    objective : callable (model, features [B, D], labels [B]) -> scalar Tensor
        The loss, in place of the cross-entropy. It runs the model itself. Autograd
        makes the gradient.
    loss_term : callable (model, Batch) -> scalar Tensor
        Added to the loss. Autograd makes its gradient; that of the cross-entropy is
        still worked out by hand where that is possible.
    add_correction : callable (params [P], gradient [P]) -> None
        Adds to `gradient` in place. It must only add: the vector may hold momentum.
    perturb : callable (params [P], gradient [P]) -> Tensor of shape (P,)
        Moves the weights before the gradient that counts. That gradient is taken on the
        same batch, with the same dropout and frozen running statistics. Then the
        weights are put back.
    stage : callable (k, map [B, C_k, H, W]) -> map
        Takes the map of each stage of a network, k = 0, 1, ..., and returns what goes
        on.
    finish : callable (LocalOutcome) -> (upload, state)
        Called after training. Returns tensors that go up with the weights, and the
        client's state for later rounds; both are dicts of tensors.
    start : Tensor of shape (P + Q,), float32
        The weights to start from, in place of the broadcast ones.
    """

    transform: Callable[[Tensor, Tensor], Tensor] | None = None
    objective: Callable[[Model, Tensor, Tensor], Tensor] | None = None
    loss_term: Callable[[Model, Batch], Tensor] | None = None
    add_correction: Callable[[Tensor, Tensor], None] | None = None
    perturb: Callable[[Tensor, Tensor], Tensor] | None = None
    stage: StageHook | None = None
    finish: Callable[[LocalOutcome], tuple[Tensors, Tensors]] | None = None
    start: Tensor | None = None


@dataclass(frozen=True)
class LocalContext:
    """What a method knows on a client in one round.

    P is the number of trained weights, Q that of running statistics (0 for heads), C
    the number of classes.

    Attributes
    ----------
    client : int
        The client's number, from 1.
    round_number : int
        The round, from 1; 0 before training.
    model : Model
        The module being trained. `Model.at` makes frozen copies at other weights.
    broadcast : Tensor of shape (P,), float32
        The weights that came down. Empty in round 0, and where no weights travel.
    download : dict of Tensor
        What `Method.download` sent with them.
    init_broadcast : dict of Tensor
        What `Method.aggregate_init` sent to everyone in round 0.
    state : dict of Tensor
        What `LocalHooks.finish` kept on this client; empty before its first round.
    counts : Tensor of shape (C,), int64
        The client's own rows of each class, without augmented ones.
    min_samples : int
        The min-count threshold. What is made of fewer rows of a class must not go up.
    optimizer : Optimizer
        The local optimiser of this round: its `type`, `lr` and `options`.
    seed : int
        The run's seed. `generator(purpose)` makes a generator of this client, round
        and purpose alone.
    weights : Tensor of shape (P + Q,), float32
        `broadcast` with the running statistics behind it, for `Model.at`.
    """

    client: int
    round_number: int
    model: Model
    broadcast: Tensor
    download: Tensors
    init_broadcast: Tensors
    state: Tensors
    counts: Tensor
    min_samples: int
    optimizer: Optimizer
    seed: int
    weights: Tensor = None  # type: ignore[assignment]

    def __post_init__(self):
        if self.weights is None:
            object.__setattr__(self, "weights", self.broadcast)

    def generator(self, purpose: str) -> torch.Generator:
        """A generator of this client, round and purpose alone."""
        return torch_generator(self.seed, self.client, purpose, self.round_number)


@dataclass(frozen=True)
class Update:
    """A client's result, as the server side of a method sees it.

    Attributes
    ----------
    client : int
        The client's number, from 1.
    aggregation_weight : float
        n_k, what the client counts for in averages; 1 with `ignore_weight`.
    params : Tensor of shape (P,), float32
        Its weights after training.
    steps : int
        Mini-batches that it took.
    upload : dict of Tensor
        What `LocalHooks.finish` sent up.
    """

    client: int
    aggregation_weight: float
    params: Tensor
    steps: int
    upload: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class ServerContext:
    """What a method knows on the server in one round.

    Attributes
    ----------
    round_number : int
        The round, from 1; 0 before training.
    model : Model
        A module of the right shape, for methods that run models on the server. Its
        running statistics are the mean of the round's.
    aggregation_weights : dict of float
        n_k of every client by number, drawn this round or not.
    init_uploads : dict of dict of Tensor
        What each client's `Method.init_upload` sent, by client number.
    seed : int
        The run's seed. `generator(purpose)` makes a generator of this round and
        purpose alone.
    device : torch.device
        Where to train or run models on the server. `model` and all tensors are on the
        CPU.
    """

    round_number: int
    model: Model
    aggregation_weights: Mapping[int, float]
    init_uploads: Mapping[int, Tensors]
    seed: int
    device: torch.device = CPU

    def generator(self, purpose: str) -> torch.Generator:
        """A generator of the server, this round and purpose alone."""
        return torch_generator(self.seed, "server", purpose, self.round_number)
