"""What a federated optimisation method is.

A method is one object with two sides. The client side turns a round's context into
`LocalHooks`, which `fit` calls, and says what goes up besides the weights. The server
side says what goes down besides the weights, and turns the updates into the next
weights. Weights are vectors of shape (P,); everything else travels and is kept as
plain dicts of tensors, so that an engine can send it and a checkpoint can hold it.

A method's file registers it by `registry.register_method`; it states there, and
nowhere else, its settings, what it asks of the local optimiser, and its flags. To
see how a part is used: `add_correction` in fedprox.py, a client's state in scaffold.py,
`loss_term` in moon.py and fedproto.py, `objective` and round 0 in fedmix.py,
`transform` in fedfa.py, `start` in local.py, the server's state in fedopt.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from federatedscope_ggeur.methods.tensors import Specs
from federatedscope_ggeur.models import Model, to_vector
from federatedscope_ggeur.rng import torch_generator
from federatedscope_ggeur.settings import Key

Tensors = Mapping[str, Tensor]
#: A field's name, and what is to be said of it.
Problem = tuple[str, str]


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
    """

    params: Tensor
    steps: int
    features: Tensor
    labels: Tensor


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
    finish : callable (LocalOutcome) -> (upload, state)
        Tensors that go up with the weights, and the client's state for later rounds.
    start : Tensor of shape (P,)
        The weights to start from, in place of the broadcast ones.
    """

    transform: Callable[[Tensor, Tensor], Tensor] | None = None
    objective: Callable[[Model, Tensor, Tensor], Tensor] | None = None
    loss_term: Callable[[Model, Batch], Tensor] | None = None
    add_correction: Callable[[Tensor, Tensor], None] | None = None
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
        The weights that came down; empty where none travel.
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
        A module of the right shape, for methods that run models on the server.
    aggregation_weights : dict of float
        n_k of every client, drawn this round or not, by client number.
    init_uploads : dict of dict of Tensor
        What each client's `init_upload` sent, by client number.
    seed : int
        The run's.
    """

    round_number: int
    model: Model
    aggregation_weights: Mapping[int, float]
    init_uploads: Mapping[int, Tensors]
    seed: int

    def generator(self, purpose: str) -> torch.Generator:
        """A generator of the server, this round and purpose alone."""
        return torch_generator(self.seed, "server", purpose, self.round_number)


class Method:
    """A federated optimisation method; override what it does otherwise than FedAvg.

    Methods hold settings only. What changes over rounds goes through the state dicts.
    A method that sends tensors up says which, so that others can be refused.

    Parameters
    ----------
    *values, **settings
        Of `SETTINGS`, in their order or by name; what is left out has its default. They
        become attributes of their names, as `Key.read` gives them. One that has neither
        value nor default stays the class's own attribute.
    """

    #: Given by the decorator that registers it.
    name: str = ""

    SETTINGS: ClassVar[tuple[Key, ...]] = ()

    #: Where they stand, if that is a section of FederatedScope's own; those without a
    #: default need one that takes new keys.
    SECTION: ClassVar[str] = ""

    #: What it does, in a line, and who published it: for the tables of the docs.
    meaning: ClassVar[str] = ""
    source: ClassVar[str] = ""
    #: What travels beside the model's weights, each way.
    sends: ClassVar[str] = ""
    receives: ClassVar[str] = ""

    #: False where weights stay with the clients: none travel, and there is no global
    #: model.
    federated: ClassVar[bool] = True

    #: True where a client that has trained keeps tensors of its own for later rounds.
    keeps_state: bool = False

    #: True where one client must hold all clients' rows.
    pools_data: ClassVar[bool] = False

    #: Own settings to lower where training diverges.
    lower_if_diverging: ClassVar[tuple[str, ...]] = ()

    #: True where a robust mean can stand in for all that it does; never inherited.
    robust: ClassVar[bool] = False

    #: True where clients send means over few rows, so that sums over the rows of a
    #: class beside them could leave single rows.
    sends_row_means: ClassVar[bool] = False

    #: Whether a client scores weights of its own making: where `eval_params` is a
    #: subclass's own. They are in the space that it trains in, as `context.broadcast`
    #: is then, and are folded back into a model on raw embeddings afterwards.
    personal: bool = False

    def __init_subclass__(cls) -> None:
        # What a subclass adds is lost where something else stands in for its mean.
        cls.robust = vars(cls).get("robust", False)
        cls.personal = cls.eval_params is not Method.eval_params

    def __init__(self, *values: Any, **settings: Any):
        given = {**{k.name: v for k, v in zip(self.SETTINGS, values)}, **settings}
        for key in self.SETTINGS:
            value = given.pop(key.name, key.default)
            if value is not None:
                setattr(self, key.name, key.read(value))
        if given or len(values) > len(self.SETTINGS):
            raise TypeError(f"{self.name} has no such settings: {values}, {settings}")

    def settings_to_lower(self) -> list[str]:
        """Own settings to lower where training diverges, as ``<method>.<setting>``."""
        return [f"{self.name}.{name}" for name in self.lower_if_diverging]

    @classmethod
    def setting_problems(cls, settings: Mapping[str, object]) -> Iterable[Problem]:
        """What settings that keep their own rules cannot be together."""
        return ()

    @classmethod
    def setting_notes(cls, settings: Mapping[str, object]) -> Iterable[Problem]:
        """What a person may not expect of settings that are allowed."""
        return ()

    @classmethod
    def optimizer_problems(cls, optimizer: Optimizer) -> Iterable[Problem]:
        """What the local optimiser cannot be, by field: type, lr, or an option."""
        return ()

    def init_upload_shapes(self, model: Model) -> Specs:
        """Names, shapes and dtypes of all that `init_upload` returns."""
        return {}

    def upload_shapes(self, model: Model) -> Specs:
        """Names, shapes and dtypes of all that `finish` sends up."""
        return {}

    def init_upload_problem(self, init_upload: Tensors, model: Model) -> str:
        """Server: why an `init_upload` of the right shapes is refused, else ""."""
        return ""

    def upload_problem(self, upload: Tensors, model: Model) -> str:
        """Server: why an upload of the right shapes is refused, else ""."""
        return ""

    # round 0
    def init_upload(
        self, features: Tensor, labels: Tensor, context: LocalContext
    ) -> Tensors:
        """Client: tensors that go up once, made of the client's own embeddings."""
        return {}

    def aggregate_init(self, init_uploads: Mapping[int, Tensors]) -> Tensors:
        """Server: what all clients' `init_upload`, by number, become for everyone.

        What the server alone may see stays in `ServerContext.init_uploads`.
        """
        return {}

    # every round
    def local(self, context: LocalContext) -> LocalHooks:
        """Client: what this round adds to plain training."""
        return LocalHooks()

    def eval_params(self, context: LocalContext) -> Tensor:
        """Client: the weights [P] that it scores after this round, or keeps at last.

        The state in `context` is that after the round.
        """
        return context.broadcast

    def initial_state(self, params: Tensor, context: ServerContext) -> Tensors:
        """Server: the state before round 1."""
        return {}

    def download(self, state: Tensors) -> Tensors:
        """Server: tensors that go down with the weights."""
        return {}

    def step(
        self,
        params: Tensor,
        updates: Sequence[Update],
        state: Tensors,
        context: ServerContext,
    ) -> tuple[Tensor, Tensors]:
        """Server: the next weights [P] and state, from updates in client order."""
        return weighted_mean(params, updates), state


def initial_weights(model: Model, seed: int) -> Tensor:
    """The weights [P] that a run of `seed` begins with, on the CPU; `model` stays."""
    fresh = copy.deepcopy(model).cpu()  # where draws are made
    return to_vector(fresh.reset(torch_generator(seed, "head")))


def weighted_mean(params: Tensor, updates: Sequence[Update]) -> Tensor:
    """``sum_k p_k w_k`` with p_k = n_k / sum n_j over these updates, in float64.

    Clients without data (n_k = 0) have no say; if all are such, `params` comes back.
    """
    total = sum(update.aggregation_weight for update in updates)
    if total == 0:
        return params
    mean = torch.zeros_like(params, dtype=torch.float64)
    for update in updates:
        if update.aggregation_weight:
            mean.add_(
                update.params.to(torch.float64), alpha=update.aggregation_weight / total
            )
    return mean.to(params.dtype)
