"""The inputs and outputs of a method's hooks, see `base.Method`.

Rules for tensors from clients, so that one client cannot harm the others.

A wrong dtype would spread to the sums over all clients. So would a number near the
limit of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from federatedscope_ggeur.geometry import LARGEST_EMBEDDING
from federatedscope_ggeur.models import CPU, Model, StageHook
from federatedscope_ggeur.rng import torch_generator

Tensors = Mapping[str, Tensor]


class Optimizer(Protocol):
    """The local optimiser, as a method sees it. `type` is its name in `torch.optim`."""

    @property
    def type(self) -> str: ...
    @property
    def lr(self) -> float: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Batch:
    """One mini-batch for a loss term, with outputs of the model that is being trained.

    B is the number of rows, D' the width of the representation, C the number of
    classes.

    Attributes
    ----------
    features : Tensor of shape (B, D), float32
        The prepared rows.
    labels : Tensor of shape (B,), int64
        The classes of the rows.
    representation : Tensor of shape (B, D'), float32
        The output of `Model.represent` for the rows, with its gradient.
    logits : Tensor of shape (B, C), float32
        The output of `Model.classify` for the representation, with its gradient.
    """

    features: Tensor
    labels: Tensor
    representation: Tensor
    logits: Tensor

    def mean(self, values: Tensor) -> Tensor:
        """The mean of `values` [B] over the rows: a scalar."""
        return values.mean()


@dataclass(frozen=True)
class LocalOutcome:
    """The result of a client's training, for `LocalHooks.finish`.

    Attributes
    ----------
    params : Tensor of shape (P,), float32
        The weights after training.
    steps : int
        The number of mini-batches that the client took.
    features : Tensor of shape (n, D), in the data's type
        The rows that the client trained on. Valid only during the call: copy rows that
        you need later.
    labels : Tensor of shape (n,), int64
        The classes of these rows. Valid only during the call.
    weights : Tensor of shape (P + Q,), float32
        `params` followed by the running statistics, for `Model.at`.
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
class LinearCorrection:
    """Adds ``alpha w + constant`` to a gradient; a value of `add_correction`.

    Such a correction can be added for several clients at once, see `Method.batched`.

    Attributes
    ----------
    constant : Tensor of shape (P,)
    alpha : float
    """

    constant: Tensor
    alpha: float = 0.0

    def __call__(self, params: Tensor, gradient: Tensor) -> None:
        if self.alpha:
            gradient.add_(params, alpha=self.alpha)
        gradient.add_(self.constant)


@dataclass(frozen=True)
class LocalHooks:
    """The functions that a method adds to plain training in one round.

    A hook that is None costs nothing.

    Attributes
    ----------
    transform : callable (features [B, D], labels [B]) -> features [B, D]
        Changes a batch before training uses it. It must return a new tensor: the batch
        may be the training set itself.
    objective : callable (model, features [B, D], labels [B]) -> scalar Tensor
        The loss that replaces the cross-entropy. The hook runs the model itself.
        Autograd computes the gradient.
    loss_term : callable (model, Batch) -> scalar Tensor
        A term that is added to the loss. Autograd computes its gradient. The gradient
        of the cross-entropy is still computed by hand if the model can do so.
    add_correction : callable (params [P], gradient [P]) -> None
        Adds a correction to `gradient` in place. It must only add, because the vector
        may hold momentum.
    perturb : callable (params [P], gradient [P]) -> Tensor of shape (P,)
        Returns how far to move the weights before the final gradient. That gradient is
        taken on the same batch, with the same dropout and frozen running statistics.
        Then the weights are moved back.
    stage : callable (k, map [B, C_k, H, W]) -> map
        Changes the map of each stage k = 0, 1, ... of a network. Its result is the next
        stage's input.
    finish : callable (LocalOutcome) -> (upload, state)
        Called after training. Returns the tensors to send with the weights, and the
        client's state for later rounds. Both are dicts of tensors.
    start : Tensor of shape (P + Q,), float32
        The weights to start from, instead of the broadcast weights.
    """

    transform: Callable[[Tensor, Tensor], Tensor] | None = None
    objective: Callable[[Model, Tensor, Tensor], Tensor] | None = None
    loss_term: Callable[[Model, Batch], Tensor] | None = None
    add_correction: Callable[[Tensor, Tensor], None] | None = None
    perturb: Callable[[Tensor, Tensor], Tensor] | None = None
    stage: StageHook | None = None
    finish: Callable[[LocalOutcome], tuple[Tensors, Tensors]] | None = None
    start: Tensor | None = None

    @property
    def change_steps(self) -> bool:
        """Whether a hook is called in each mini-batch."""
        return not (
            self.transform is None
            and self.objective is None
            and self.loss_term is None
            and self.add_correction is None
            and self.perturb is None
            and self.stage is None
        )


@dataclass(frozen=True)
class LocalContext:
    """What a method knows on a client in one round.

    P is the number of trained weights. Q is the number of running statistics (0 for
    heads). C is the number of classes.

    Attributes
    ----------
    client : int
        The client's number, from 1.
    round_number : int
        The round, from 1; 0 before training.
    model : Model
        The module being trained. `Model.at` makes frozen copies at other weights.
    broadcast : Tensor of shape (P,), float32
        The weights that the server sent. Empty in round 0, and if the server sends no
        weights.
    download : dict of Tensor
        The tensors of `Method.download`, sent with the weights.
    init_broadcast : dict of Tensor
        The tensors of `Method.aggregate_init`, sent to all clients in round 0.
    state : dict of Tensor
        The state that `LocalHooks.finish` returned on this client last. Empty before
        the client's first round.
    counts : Tensor of shape (C,), int64
        The client's own rows of each class, without augmented ones.
    min_samples : int
        The min-count threshold. Do not send values computed from fewer rows of a class;
        `told` has the classes with enough rows.
    optimizer : Optimizer
        The local optimiser of this round: its `type`, `lr` and `options`.
    seed : int
        The run's seed. `generator(purpose)` makes a generator for this client, round
        and purpose.
    weights : Tensor of shape (P + Q,), float32
        `broadcast` followed by the running statistics, for `Model.at`.
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

    @property
    def told(self) -> Tensor:
        """The classes with at least `min_samples` own rows: a mask of shape (C,)."""
        return self.counts >= self.min_samples

    def generator(self, purpose: str) -> torch.Generator:
        """A generator that depends only on the seed, this client, round and purpose."""
        return torch_generator(self.seed, self.client, purpose, self.round_number)


@dataclass(frozen=True)
class Update:
    """A client's result, for the server side of a method.

    Attributes
    ----------
    client : int
        The client's number, from 1.
    aggregation_weight : float
        n_k, the client's weight in averages; 1 with `ignore_weight`.
    params : Tensor of shape (P,), float32
        The client's weights after training.
    steps : int
        The number of mini-batches that the client took.
    upload : dict of Tensor
        The tensors that `LocalHooks.finish` sent.
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
        running statistics are the mean over the round's clients.
    aggregation_weights : dict of float
        n_k of every client by its number, whether or not it was drawn in this round.
    init_uploads : dict of dict of Tensor
        The tensors of each client's `Method.init_upload`, by client number.
    seed : int
        The run's seed. `generator(purpose)` makes a generator for this round and
        purpose.
    device : torch.device
        The device on which to train or run models on the server. `model` and all
        tensors are on the CPU.
    """

    round_number: int
    model: Model
    aggregation_weights: Mapping[int, float]
    init_uploads: Mapping[int, Tensors]
    seed: int
    device: torch.device = CPU

    def generator(self, purpose: str) -> torch.Generator:
        """A generator that depends only on the seed, this round and purpose."""
        return torch_generator(self.seed, "server", purpose, self.round_number)


#: No client has more rows. Sums over clients stay within int64.
_MOST_ROWS = 2**40


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of a tensor that a client sends. None in a shape: any length."""

    shape: tuple[int | None, ...]
    dtype: torch.dtype = torch.float32

    def problem(self, tensor: Tensor) -> str:
        """A text that says how `tensor` differs from this; else ""."""
        if tensor.dtype != self.dtype:
            return f"expected {self.dtype}, got {tensor.dtype}"
        return shape_problem(tensor, self.shape)


Specs = Mapping[str, TensorSpec]

#: The types that a method's own tensors may have. Torch cannot add tensors of other
#: types, or cannot tell whether they are finite.
OWN_DTYPES = (torch.int64, torch.float64, torch.float32, torch.uint8)
_OWN_DIMENSIONS = 8


def own_problem(tensor: Tensor) -> str:
    """A text that says why no message can hold a method's own `tensor`; else ""."""
    if tensor.dtype in OWN_DTYPES and tensor.ndim <= _OWN_DIMENSIONS:
        return ""
    return (
        f"expected one of {OWN_DTYPES} in at most {_OWN_DIMENSIONS} dimensions, got "
        f"{tensor.dtype} in {tensor.ndim}"
    )


def shape_problem(tensor: Tensor, shape: tuple[int | None, ...]) -> str:
    """A text that says how the shape of `tensor` differs from `shape`; else "".

    None in `shape` stands for any length.
    """
    actual = tuple(tensor.shape)
    if actual == shape:
        return ""
    if len(actual) == len(shape) and all(
        want in (None, have) for want, have in zip(shape, actual)
    ):
        return ""
    wanted = ", ".join("any" if s is None else str(s) for s in shape)
    return f"expected shape ({wanted}), got {actual}"


def names_problem(tensors: Tensors, specs: Specs) -> str:
    """A text that says which tensors are missing or not in `specs`; else ""."""
    if tensors.keys() == specs.keys():
        return ""
    return f"expected the tensors {sorted(specs)}, got {sorted(tensors)}"


def value_problem(what: str, values: Tensor) -> str:
    """The problem of `what` for a message, if any of `values` is too large; else ""."""
    if (values.abs() > LARGEST_EMBEDDING).any():
        return f"{what} must lie within +-{LARGEST_EMBEDDING:g}"
    return ""


def count_problem(what: str, counts: Tensor) -> str:
    """The problem of `what` for a message, if one of `counts` is impossible; or ""."""
    if ((counts < 0) | (counts > _MOST_ROWS)).any():
        return f"{what} must lie in 0..{_MOST_ROWS}"
    return ""
