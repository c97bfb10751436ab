"""The definition of a federated optimisation method.

A method is one object with two sides. The client side turns a round's context into
`LocalHooks`, which `fit` calls. It also names the tensors that clients send besides the
weights. The server side names the tensors that the server sends besides the weights,
and computes the next weights from the updates. Methods work on vectors of the P
trainable numbers. The roles average a network's Q running statistics
(`models.vectors`). All other values are plain dicts of tensors, which engines can send
and checkpoints can store.

A method's file registers it with `registry.register_method`. Only this file has its
settings, its flags, and what it needs of the local optimiser. Examples:
`add_correction` in fedprox.py, a client's state in scaffold.py, `loss_term` in moon.py
and fedproto.py, `objective` and round 0 in fedmix.py, `transform` in fedfa.py, `start`
in local.py, the server's state in fedopt.py.

Features are embeddings or, for a network, pixels. `init_upload` and `finish` get them
as in the data, for `Model.prepare` and `Model.in_chunks`. Other hooks get prepared
batches.

A method's hooks for several clients that train at once, see `Method.batched`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from federatedscope_ggeur.errors import PluginError, setting
from federatedscope_ggeur.models import Model, to_vector
from federatedscope_ggeur.rng import torch_generator
from federatedscope_ggeur.settings import (
    Key,
    Objection,
    Objections,
    Problem,
    is_of_plugin,
    where_of,
)

from .contexts import (
    LinearCorrection,
    LocalContext,
    LocalHooks,
    LocalOutcome,
    Optimizer,
    ServerContext,
    Specs,
    Tensors,
    Update,
)

Finish = Callable[[LocalOutcome], tuple[Tensors, Tensors]]


class Heads(Protocol):
    """The heads of several clients, as a batched hook sees them.

    `weights` are of shape (A, P), or (1, P) for weights that all clients share.
    """

    def represent(self, weights: Tensor, features: Tensor) -> Tensor:
        """The representations [A, B, D'] of features [A, B, D]."""

    def logits(self, weights: Tensor, features: Tensor) -> Tensor:
        """The logits [A, B, C] of features [A, B, D], without dropout."""


@dataclass(frozen=True)
class GroupBatch:
    """One mini-batch of each of A clients, for a batched loss term.

    Attributes
    ----------
    features : Tensor of shape (A, B, D), float32
    labels : Tensor of shape (A, B), int64
    representation : Tensor of shape (A, B, D'), float32
    logits : Tensor of shape (A, B, C), float32
        As in `Batch`, with their gradients.
    share : Tensor of shape (A, B), float32
        One over the number of the client's rows in the batch; 0 for padded rows.
    """

    features: Tensor
    labels: Tensor
    representation: Tensor
    logits: Tensor
    share: Tensor

    def mean(self, values: Tensor) -> Tensor:
        """The mean of `values` [A, B] over each client's rows: [A]."""
        return (values * self.share).sum(dim=1)


@dataclass(frozen=True)
class BatchedHooks:
    """`LocalHooks` for K clients that train at once.

    Clients that have taken all their steps leave the others. So a hook may be called
    for the first A of them: it takes the first A of its own tensors.

    Attributes
    ----------
    loss_term : callable (Heads, GroupBatch) -> Tensor of shape (A,)
        The term of each client. A client's term depends on its own weights alone.
    add_correction : LinearCorrection
        Its constant is of shape (K, P), or (1, P) for all clients.
    perturb : callable (params [A, P], gradient [A, P]) -> Tensor of shape (A, P)
    finish : sequence of callable or None, of length K
        Each client's own.
    start : Tensor of shape (K, P)
    """

    loss_term: Callable[[Heads, GroupBatch], Tensor] | None = None
    add_correction: LinearCorrection | None = None
    perturb: Callable[[Tensor, Tensor], Tensor] | None = None
    finish: Sequence[Finish | None] | None = None
    start: Tensor | None = None

    @property
    def runs_code(self) -> bool:
        """Whether a step calls functions of the method."""
        return not (self.loss_term is None and self.perturb is None)


def stacked(hooks: Sequence[LocalHooks], name: str) -> BatchedHooks:
    """The hooks of several clients as one.

    Corrections are stacked, and the first client's `perturb` serves all.

    Raises
    ------
    PluginError
        The method `name` says that it is batched, but its hooks cannot be stacked.
    """
    first = hooks[0]
    if first.change_steps:
        alone = (first.transform, first.objective, first.loss_term, first.stage)
        linear = [isinstance(h.add_correction, LinearCorrection) for h in hooks]
        corrects = first.add_correction is not None
        if any(one is not None for one in alone) or (corrects and not all(linear)):
            raise PluginError(
                f"the method '{name}' says that it is batched, but its hooks work on "
                "one client; give it local_batched, or LinearCorrection and perturb "
                "alone"
            )
    finish = [one.finish for one in hooks]
    starts = [one.start for one in hooks if one.start is not None]
    return BatchedHooks(
        add_correction=_stacked([one.add_correction for one in hooks]),
        perturb=first.perturb,
        finish=finish if any(finish) else None,
        start=torch.stack(starts) if starts else None,
    )


def _stacked(corrections: Sequence) -> LinearCorrection | None:
    if corrections[0] is None:
        return None
    constants = [one.constant for one in corrections]
    if all(constant is constants[0] for constant in constants):
        constants = constants[:1]
    return LinearCorrection(torch.stack(constants), corrections[0].alpha)


class Method:
    """A federated optimisation method. Override what differs from FedAvg.

    Methods hold settings only. Values that change over rounds are in the state dicts. A
    method names the tensors that clients send, so that the server can refuse others.

    Parameters
    ----------
    *values, **settings
        Values for `SETTINGS`, in their order or by name. Missing ones have their
        defaults. All become attributes, converted by `Key.read`. A setting without
        value and default keeps the class's own attribute.
    """

    #: The method's name, and the setting that chooses it. The registry sets both.
    name: str = ""
    chosen_by: str = ""

    SETTINGS: ClassVar[tuple[Key, ...]] = ()

    #: FederatedScope's own section with these settings, if there is one. A setting
    #: without a default needs a section that takes new keys.
    SECTION: ClassVar[str] = ""

    #: A line that describes the method, and who published it, for the docs' tables.
    meaning: ClassVar[str] = ""
    source: ClassVar[str] = ""
    #: What clients send and receive besides the model's weights.
    sends: ClassVar[str] = ""
    receives: ClassVar[str] = ""

    #: False if weights stay with the clients. Then there is no global model.
    federated: ClassVar[bool] = True

    #: True if clients keep own tensors for later rounds.
    keeps_state: bool = False

    #: True if one client must hold all clients' rows.
    pools_data: ClassVar[bool] = False

    #: Own settings to lower if training diverges.
    lower_if_diverging: ClassVar[tuple[str, ...]] = ()

    #: True if a robust mean can replace the server's step. Never inherited.
    robust: ClassVar[bool] = False

    #: True if clients send means over few rows. Sums over a class minus these means
    #: could reveal single rows.
    sends_row_means: ClassVar[bool] = False

    #: True if the tensors that clients send depend only on weights, not on rows.
    sends_weights_alone: ClassVar[bool] = False

    #: True if clients send tensors besides the weights that depend on rows.
    sends_of_rows: ClassVar[bool] = False

    #: True if heads of several clients may train at once, see `local_batched`. A
    #: subclass with a `local` of its own says so again.
    batched: bool = True

    #: True if a subclass defines `local`.
    changes_training: ClassVar[bool] = False

    #: True if a client scores its own weights, because a subclass defines
    #: `eval_params`. These weights are in the space of training, like
    #: `context.broadcast`. The client converts them to a model on raw embeddings, and
    #: the run saves this model on the client's machine.
    personal: bool = False

    def __init_subclass__(cls) -> None:
        # A robust mean would lose what a subclass adds.
        cls.robust = vars(cls).get("robust", False)
        cls.personal = cls.overrides("eval_params")
        cls.changes_training = cls.overrides("local")
        sends = cls.overrides("init_upload_shapes", "upload_shapes")
        cls.sends_of_rows = sends and not cls.sends_weights_alone
        own = vars(cls)
        if "local" in own or "local_batched" in own:
            cls.batched = own.get("batched", "local_batched" in own)

    def __init__(self, *values: Any, **settings: Any):
        given = {**{k.name: v for k, v in zip(self.SETTINGS, values)}, **settings}
        for key in self.SETTINGS:
            if key.name in given or key.in_config is not None:
                setattr(self, key.name, key.read(given.pop(key.name, key.default)))
        if given or len(values) > len(self.SETTINGS):
            raise TypeError(
                f"the method {self.name} has no such settings: {values}, {settings}"
            )

    @classmethod
    def overrides(cls, *hooks: str) -> bool:
        """Whether the class has one of `hooks` of its own, instead of FedAvg's."""
        return any(getattr(cls, name) is not getattr(Method, name) for name in hooks)

    def settings_to_lower(self) -> list[str]:
        """Settings to lower if training diverges, as ``<method>.<setting>``."""
        return [f"{self.name}.{name}" for name in self.lower_if_diverging]

    def of_plugins(self) -> list[str]:
        """The plugins' parts of this method, with file and line, for messages."""
        part = type(self)
        return [f"'{self.name}'{where_of(part)}"] if is_of_plugin(part) else []

    @classmethod
    def setting_problems(cls, settings: Mapping[str, object]) -> Iterable[Problem]:
        """Yield settings that are each valid but do not go together."""
        return ()

    @classmethod
    def setting_notes(cls, settings: Mapping[str, object]) -> Iterable[Problem]:
        """Yield notes on valid settings with a surprising effect."""
        return ()

    @classmethod
    def objections(cls, run: Any) -> Objections:
        """Yield the settings of a run that conflict with this method."""
        own = cls.chosen_by
        if not cls.federated:
            unseen = {"unseen_domains": [[]], "unseen_client_num": [0]}
            yield Objection(own, unseen, "because nobody trains a model for them")
            nothing = {"closed_form": ["none"], "calibrate": ["none"]}
            yield Objection(own, nothing, "which has no global model")
            added = {"augmentation": ["ggeur", "none"]}
            yield Objection(own, added, "since its clients send nothing")
        if cls.pools_data:
            one = {"mode": ["standalone"], "unseen_client_num": [0]}
            yield Objection(own, one, "since one client has the rows of all clients")
        if cls.personal or not cls.federated:
            why = "which gives every client its own head"
            yield Objection(own, {"keep": ["trained"]}, why)
        if own == "augmentation" and not run.trains:
            why = f"which needs training; or set {setting('init')}: closed_form"
            yield Objection(own, {"closed_form": ["none"]}, why)
        if cls.sends_row_means and run.min_samples > 1:
            least = setting("min_samples")
            why = (
                f"and {least} {run.min_samples}: sums over classes minus the sums "
                "of its means can reveal single rows; choose another augmentation, or "
                f"allow this by {least} 1"
            )
            yield Objection(own, {"calibrate": ["none"], "init": ["random"]}, why)

    @classmethod
    def optimizer_problems(cls, optimizer: Optimizer) -> Iterable[Problem]:
        """Yield problems of the local optimiser, by field: type, lr, or an option."""
        return ()

    def model_problem(self, model: Model) -> str:
        """Why the method cannot train this model; "" if it can."""
        return ""

    def init_upload_shapes(self, model: Model) -> Specs:
        """Both sides: name, shape and dtype of the tensors of `init_upload`."""
        return {}

    def upload_shapes(self, model: Model) -> Specs:
        """Both sides: name, shape and dtype of each tensor that `finish` sends."""
        return {}

    def init_upload_problem(self, init_upload: Tensors, model: Model) -> str:
        """Server: the reason to refuse an `init_upload` of the right shapes, or ""."""
        return ""

    def upload_problem(self, upload: Tensors, model: Model) -> str:
        """Server: the reason to refuse an upload of the right shapes, or ""."""
        return ""

    # round 0
    def init_upload(
        self, features: Tensor, labels: Tensor, context: LocalContext
    ) -> Tensors:
        """Client, round 0: make tensors from the client's rows that are sent once."""
        return {}

    def aggregate_init(self, init_uploads: Mapping[int, Tensors]) -> Tensors:
        """Server, round 0: make tensors for all clients from every `init_upload`.

        Tensors for the server alone stay in `ServerContext.init_uploads`.
        """
        return {}

    # every round
    def local(self, context: LocalContext) -> LocalHooks:
        """Client: the hooks that this method adds to plain training in this round."""
        return LocalHooks()

    def local_batched(self, contexts: Sequence[LocalContext]) -> BatchedHooks:
        """Clients: the hooks of `local` for several clients that train at once.

        Only methods that are `batched` are asked. By default the hooks of `local` are
        stacked. So they must be the same for several clients. A correction must be a
        `LinearCorrection`. A `perturb` must take [P] or [A, P], and hold nothing of one
        client.
        """
        return stacked([self.local(context) for context in contexts], self.name)

    def eval_params(self, context: LocalContext) -> Tensor:
        """Client: the weights [P + Q] to score after a round and to save at the end.

        `context` has the state after the round.
        """
        return context.weights

    def initial_state(self, params: Tensor, context: ServerContext) -> Tensors:
        """Server: the state before round 1."""
        return {}

    def download(self, state: Tensors) -> Tensors:
        """Server: tensors that clients get together with the weights of each round."""
        return {}

    def scoring_download(self, state: Tensors) -> Tensors:
        """Server: tensors that clients get together with weights to score.

        By default they are the tensors of `download`. Override this hook if
        `eval_params` needs fewer.
        """
        return self.download(state)

    def scored_params(self, params: Tensor, state: Tensors) -> Tensor:
        """Server: the weights [P + Q] to score after a round and to save at the end.

        The next round still begins with `params`. The state may hold other weights for
        scoring, such as an average over rounds.
        """
        return params

    def figures(self, state: Tensors) -> Mapping[str, float]:
        """Server: numbers by name for the record of the round.

        `state` is the state after the round. NaN and infinity become null in
        ``results.json``.
        """
        return {}

    def step(
        self,
        params: Tensor,
        updates: Sequence[Update],
        state: Tensors,
        context: ServerContext,
    ) -> tuple[Tensor, Tensors]:
        """Server: compute the next weights [P] and the next state.

        Updates are in client order.
        """
        return weighted_mean(params, updates), state


def initial_weights(model: Model, seed: int) -> Tensor:
    """The initial weights [P + Q] of a run with this seed, on the CPU."""
    fresh = copy.deepcopy(model).cpu()  # all draws are made on the CPU
    return to_vector(fresh.reset(torch_generator(seed, "head")))


def weighted_mean(params: Tensor, updates: Sequence[Update]) -> Tensor:
    """The mean of the updates' weights, weighted by aggregation weights n_k.

    It is ``sum_k p_k w_k`` with ``p_k = n_k / sum_j n_j``, computed in float64. Clients
    without data (n_k = 0) do not count. If no client has data, the result is `params`.
    """
    total = sum(update.aggregation_weight for update in updates)
    if total == 0:
        return params
    mean = torch.zeros_like(params, dtype=torch.float64)
    for update in updates:
        if update.aggregation_weight:
            mean.add_(update.params, alpha=update.aggregation_weight / total)
    return mean.to(params.dtype)
