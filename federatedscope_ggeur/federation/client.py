"""The client role: the data, model and state that all answers of a client use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.geometry import AugmentedSet
from federatedscope_ggeur.methods import LocalContext
from federatedscope_ggeur.models import OTHER_MODELS, Model, trainable_part
from federatedscope_ggeur.rng import numpy_generator

from .memory import MemoryBudget
from .settings import RoleSettings, Task, TrainingSettings


def check_rows(model: Model, features: Tensor) -> None:
    """Refuse embeddings for a model of images, and pixels for a head.

    Raises
    ------
    ConfigError
    """
    pixels = features.dtype == torch.uint8
    if pixels == model.takes_images:
        return
    if not pixels:
        raise ConfigError(model.lacks_pixels)
    takes = [name for name, part in OTHER_MODELS.items() if part.takes_images]
    ways = [*map(setting, takes), f"an {setting('encoder.name')} that embeds images"]
    raise ConfigError(f"the data are pixels: set {', or '.join(ways)}")


def chosen_rows(
    features: Tensor, labels: Tensor, chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """The rows for which `chosen` [n] is true; if it always is, no copy is made."""
    if bool(chosen.all()):
        return features, labels
    return features[chosen], labels[chosen]


#: The largest share of its rows that a client holds out.
MOST_HELD_OUT = 0.15


def held_out_count(rows: int, share: float, least: int) -> int:
    """How many of a client's rows are held out: a share, or none if that is fewer than
    `least`.
    """
    held = round(share * rows)
    return held if held >= least else 0


class LabelledRows(Protocol):
    """Rows with their labels, such as `Embeddings`."""

    @property
    def features(self) -> Tensor: ...
    @property
    def labels(self) -> Tensor: ...
    @property
    def weights(self) -> Tensor | None: ...


class Held(Protocol):
    """The data of one client, such as `ClientData`."""

    @property
    def number(self) -> int: ...
    @property
    def domain(self) -> str: ...
    @property
    def train(self) -> LabelledRows: ...


class TrainingSet(NamedTuple):
    """The rows that a client trains on.

    Attributes
    ----------
    features : Tensor of shape (n, D)
    labels : Tensor of shape (n,), int64
    order : Tensor of shape (m,), int64, or None
        The row numbers of the set's rows. None stands for all rows as they are.
    """

    features: Tensor
    labels: Tensor
    order: Tensor | None = None

    @property
    def size(self) -> int:
        """m, the number of the set's rows."""
        return (self.labels if self.order is None else self.order).shape[0]

    def gathered(self) -> tuple[Tensor, Tensor]:
        """The set's rows and labels, in order."""
        if self.order is None:
            return self.features, self.labels
        return self.features[self.order], self.labels[self.order]


#: What a client begins with; it is replaced and never changed.
#: The name of a one-shot head among states.
_PERSONAL = "personal"
_NO_STATES: dict[int, dict[str, Tensor]] = {}
_NO_TENSORS: dict[str, Tensor] = {}


class Client:
    """One client: its rows, its model, and its state between requests.

    The exchanges compute the client's answers from this object. A run may have very
    many clients and draw only a few of them. So a client takes little memory: its rows
    and its training set are made when they are first needed.

    Parameters
    ----------
    held : Held
        Its number is the client's data index, from 1, and part of the seed of every
        draw. It may have no rows.
    settings : RoleSettings
    memory : MemoryBudget
        The memory budget that all clients of a process share.

    Attributes
    ----------
    schema : MessageSchema
        The schema of the server's messages.
    scored_schema : MessageSchema
        The schema of messages with the model that is scored. This model may be of
        another kind than `model`.
    counts : Tensor of shape (C,), int64
        The number of the client's rows in each class.
    space : Space
        The space of training from the end of round 0 on. The training set and the
        weights are in this space. Everything else, `features` too, is raw.
    recipe : AugmentedSet or None
        The training set, from the end of round 0 on.
    kept_set : TrainingSet or None
        The training set, if it is drawn only once.
    aggregation_weight : float
        The client's weight in averages over clients.
    init_broadcast : dict from str to Tensor
        The method's message to all clients.
    states : dict from round to dict from str to Tensor
        The tensors that the method keeps on this client, by round. Round 0 may have the
        client's own one-shot head.
    held_share : float or None
        The share of the training rows that training does not see; see `held_out`. None
        until the client is prepared for training.
    merged : object or None
        The merged statistics, from which left-out rows are subtracted.
    one_shot : object or None
        The one-shot head that scores rows held out. It may also give training rows
        their offsets.
    personal : Tensor of shape (P,), or None
        The weights of the client's own one-shot head, a `scored_model`.
    on_state : callable () or None
        Called when there is a new state.
    """

    __slots__ = (
        "_held",
        "_make_recipe",
        "_recipe",
        "aggregation_weight",
        "held_share",
        "init_broadcast",
        "kept_set",
        "memory",
        "merged",
        "model",
        "on_state",
        "one_shot",
        "schema",
        "scored_model",
        "scored_schema",
        "settings",
        "space",
        "states",
    )

    def __init__(self, held: Held, settings: RoleSettings, memory: MemoryBudget):
        self._held, self.settings, self.memory = held, settings, memory
        modules = memory.modules(settings.task, settings.training.device)
        self.model, self.scored_model = modules.model, modules.scored_model
        self.schema, self.scored_schema = modules.schema, modules.scored_schema
        check_rows(self.model, held.train.features)
        self.space = memory.raw(settings.task.dim)
        self._recipe: AugmentedSet | None = None
        self._make_recipe: Callable[[Client], AugmentedSet] | None = None
        self.kept_set: TrainingSet | None = None
        self.aggregation_weight = 0.0
        self.init_broadcast = _NO_TENSORS
        self.states = _NO_STATES
        self.held_share: float | None = None
        self.merged: Any = None
        self.one_shot: Any = None
        self.on_state: Callable[[], None] | None = None

    @property
    def personal(self) -> Tensor | None:
        return self.states.get(0, {}).get(_PERSONAL)

    def keep_personal(self, params: Tensor) -> None:
        """Keep the weights of the client's own one-shot head."""
        self.keep_state(0, {_PERSONAL: params})

    @property
    def number(self) -> int:
        return self._held.number

    @property
    def domain(self) -> str:
        return self._held.domain

    @property
    def features(self) -> Tensor:
        return self._held.train.features

    @property
    def labels(self) -> Tensor:
        return self._held.train.labels

    @property
    def weights(self) -> Tensor | None:
        """The weights of the training rows [n], float64; None if all are 1."""
        return self._held.train.weights

    @property
    def task(self) -> Task:
        return self.settings.task

    @property
    def counts(self) -> Tensor:
        # torch takes several times as long to count few labels.
        held = np.bincount(self.labels.numpy(), minlength=self.task.num_classes)
        return torch.from_numpy(held)

    @property
    def told(self) -> Tensor:
        """The classes of which clients tell something: a mask of shape (C,).

        They have at least ``ggeur.privacy.min_samples`` rows. What is made of fewer
        rows of a class does not leave the client.
        """
        return self.counts >= self.settings.min_samples

    def held_out(self) -> Tensor:
        """The training rows that training does not see: a mask [n], drawn by seed."""
        rows = len(self.labels)
        held = torch.zeros(rows, dtype=torch.bool)
        if self.held_share:
            least = self.settings.min_samples
            drawn = held_out_count(rows, self.held_share, least)
            generator = numpy_generator(self.task.seed, self.number, "held_out")
            held[generator.permutation(rows)[:drawn]] = True
        return held

    @property
    def recipe(self) -> AugmentedSet | None:
        if self._recipe is None and self._make_recipe is not None:
            self._recipe = self._make_recipe(self)
        return self._recipe

    def train_on(self, make: Callable[[Client], AugmentedSet]) -> None:
        """Train on the set that `make` returns for this client.

        `make` is called when the set is first needed.
        """
        self._make_recipe, self._recipe, self.kept_set = make, None, None

    @property
    def state(self) -> dict[str, Tensor]:
        """The method's tensors after the last round in which this client trained."""
        return self.states[max(self.states)] if self.states else {}

    def state_before(self, round_number: int) -> dict[str, Tensor]:
        """The method's tensors as they were before the round `round_number`."""
        earlier = [number for number in self.states if number < round_number]
        return self.states[max(earlier)] if earlier else {}

    def keep_state(self, round_number: int, state: dict[str, Tensor]) -> None:
        """Keep the state of this round and of the round before.

        Both are kept because a restarted server may repeat one round.
        """
        held = {**self.states, round_number: state}
        kept = sorted(number for number in held if number <= round_number)[-2:]
        self.states = {number: held[number] for number in kept}
        if self.on_state is not None:
            self.on_state()

    def training(self, round_number: int) -> TrainingSettings:
        """The training settings of a round.

        If a round draws only a share of the set, the settings are adapted so that SGD
        goes as far as on the whole set.
        """
        training, recipe = self.settings.training.in_round(round_number), self.recipe
        if recipe is None or recipe.settings.share == 1:
            return training
        return training.on_share(recipe.whole, recipe.rows)

    def context(
        self, round_number: int, weights: Tensor, download: Mapping[str, Tensor]
    ) -> LocalContext:
        """The context that the method gets in a round which begins with `weights`."""
        return LocalContext(
            self.number,
            round_number,
            self.model,
            trainable_part(self.model, weights),
            download,
            self.init_broadcast,
            self.state_before(round_number),
            self.counts,
            self.settings.min_samples,
            self.training(round_number).optimizer,
            self.task.seed,
            weights,
        )
