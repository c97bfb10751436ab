"""What a method is told, and what it gives: see `base.Method`."""

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
    """One mini-batch under the weights being trained.

    Attributes
    ----------
    features : Tensor of shape (B, D)
    labels : Tensor of shape (B,)
    representation : Tensor of shape (B, D')
    logits : Tensor of shape (B, C)
    """

    features: Tensor
    labels: Tensor
    representation: Tensor
    logits: Tensor


@dataclass(frozen=True)
class LocalOutcome:
    """What a client's training gave, as `LocalHooks.finish` sees it.

    Attributes
    ----------
    params : Tensor of shape (P,)
        The weights after training.
    steps : int
        Mini-batches taken.
    features, labels : Tensor of shape (n, D) and (n,)
        The set that was trained on. Valid during the call only: copy what you keep.
    weights : Tensor of shape (P + Q,)
        The same with running statistics, for `Model.at`; default: `params`.
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
        Changes a batch before it is used; never in place, it may be the set itself.
    objective : callable (model, features [B, D], labels [B]) -> scalar Tensor
        Stands in for the cross-entropy; it runs the model itself.
    loss_term : callable (model, Batch) -> scalar Tensor
        Added to the loss. Its gradient comes from autograd, and so does that of
        `objective`; the cross-entropy keeps its gradient by hand where there is one.
    add_correction : callable (params [P], gradient [P]) -> None
        Adds to `gradient` in place. It must add only: the vector may hold momentum.
    perturb : callable (params [P], gradient [P]) -> Tensor of shape (P,)
        What the weights are moved by for the gradient that counts, which is taken
        again on the same batch, with the same dropout and running statistics left as
        they are; then they are put back.
    stage : callable (k, map [B, C_k, H, W]) -> map
        Takes every stage's map of a network, k = 0, 1, ..., and gives what goes on.
    finish : callable (LocalOutcome) -> (upload, state)
        Tensors that go up with the weights, and the client's state for later rounds.
    start : Tensor of shape (P + Q,)
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

    Attributes
    ----------
    client, round_number : int
    model : Model
        The module being trained; `Model.at` gives frozen copies at other weights.
    broadcast : Tensor of shape (P,)
        The weights that came down; empty where none travel. See `weights`.
    download : dict of Tensor
        What else came down this round.
    init_broadcast : dict of Tensor
        What `aggregate_init` sent to everyone in round 0.
    state : dict of Tensor
        The client's own, empty until its first round.
    counts : Tensor of shape (C,), int64
        The client's own rows of each class, without augmented ones.
    min_samples : int
        Below it, what is made of a class's rows, or of so few rows, must not go up.
    optimizer : Optimizer
        Of the local training (type, lr, options).
    seed : int
        The run's.
    weights : Tensor of shape (P + Q,)
        The weights that came down with running statistics, for `Model.at`; default:
        `broadcast`.
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
    aggregation_weight : float
        n_k, what the client counts for in averages (1 for all with `ignore_weight`).
    params : Tensor of shape (P,)
    steps : int
    upload : dict of Tensor
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
    model : Model
        A module of the right shape, for methods that run models on the server; its
        running statistics are the mean of the round's.
    aggregation_weights : dict of float
        n_k of every client, drawn this round or not, by client number.
    init_uploads : dict of dict of Tensor
        What each client's `init_upload` sent, by client number.
    seed : int
        The run's.
    device : torch.device
        Where a method that trains or runs models on the server is to do so; `model` and
        all that it is given are on the CPU.
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
