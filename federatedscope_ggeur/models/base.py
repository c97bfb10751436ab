"""The base class of all models. The parameters of a model are one vector.

Models that a run trains in place of a head on embeddings.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras import parts_of
from federatedscope_ggeur.settings import Objections, Registry

from .vectors import load_vector, norm_mask, norm_modules

CPU = torch.device("cpu")
Accumulator = Callable[[Tensor, Tensor], None]
#: Takes k and the map [B, C_k, H, W] of stage k; returns the map for the next stage.
StageHook = Callable[[int, Tensor], Tensor]


#: The share of equal probabilities in published ones. It bounds the log-loss of a row:
#: without a bound a few rows that a head is sure of and wrong about decide its
#: temperature alone.
SMOOTHING = 1e-3
#: What log-probabilities of a one-shot head are multiplied by as offsets of rows. At 1
#: nearly all rows would be fitted before training begins. The few others would stand
#: alone in a client's update, and could be read off it.
OFFSET_SHARE = 0.5


def draw_linear_layers(module: nn.Module, generator: torch.Generator) -> None:
    """Draw the initial parameters of all linear layers as `torch.nn.Linear` does."""
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Linear):
                bound = layer.in_features**-0.5
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.uniform_(-bound, bound, generator=generator)


class Model(nn.Module):
    """A classifier on embeddings that gives logits, never softmax outputs.

    Subclasses define `represent` and `classify`; `forward` calls one after the other.
    The last layer is `classifier`, and its input is `last_input`.

    Parameters
    ----------
    in_features : int
        Dimension D of the embeddings.
    num_classes : int
        Number C of classes.
    """

    #: The last layer, of weight (C, D'') and bias (C,).
    classifier: nn.Linear

    #: The name of the linear layer that takes embeddings; "" if there is none.
    first_layer: ClassVar[str] = ""

    #: False if `gradient_accumulator` computes the gradient by hand.
    uses_autograd = True

    #: Rows that the model takes at a time outside of training.
    chunk_rows = 8192

    #: True if rows are pixels of images. Then, what to do with embeddings.
    takes_images = False
    lacks_pixels = "the model trains on pixels, but the data are embeddings"

    #: The setting, with a value, that gives a model with BatchNorm other norms.
    norms_without_batches = ""

    #: The number format of products and convolutions: fp32, tf32 (on a GPU) or bf16.
    precision = "fp32"

    #: Training skips batches of fewer rows.
    least_batch = 1

    #: False if parameter vectors may have several lengths, see `make_room_for`.
    fixed_size = True

    def __init__(self, in_features: int, num_classes: int):
        super().__init__()
        self.in_features = in_features
        self.num_classes = num_classes

    def prepare(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Turn rows [B, D] of the data, of any dtype, into float32 input of the model.

        In training there is a `generator`; models of images draw augmentations from it.
        Embeddings stay as they are.
        """
        return rows

    def represent(self, features: Tensor) -> Tensor:
        """The representation z of prepared rows [n, D]. Loss terms may act on z."""
        raise NotImplementedError

    def classify(self, representation: Tensor) -> Tensor:
        """Logits of shape (n, C) of a representation, by default the representation."""
        return representation

    def last_input(self, features: Tensor) -> Tensor:
        """The input of the layer `classifier`, of shape (n, D''), without dropout."""
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The training loss of logits [B, C] with labels [B]: cross-entropy."""
        return F.cross_entropy(logits, labels)

    @contextmanager
    def of_client(self, counts: Tensor) -> Iterator[None]:
        """Tell the model which client's rows it trains on inside this block.

        `counts` [C] are the client's numbers of rows of each class.
        """
        yield

    def forward(self, features: Tensor) -> Tensor:
        return self.classify(self.represent(features))

    def reset(self, generator: torch.Generator) -> Model:
        """Draw the initial parameters as `torch.nn.Linear` does. Returns the model."""
        draw_linear_layers(self, generator)
        return self

    def make_room_for(self, size: int) -> None:
        """Prepare for a vector of `size` parameters, if the size is not fixed."""

    @property
    def width(self) -> int:
        """D', the number of columns of a representation."""
        device = next(self.parameters()).device
        nothing = torch.zeros(0, self.in_features, device=device)
        return self.represent(nothing).shape[1]

    @property
    def stage_widths(self) -> tuple[int, ...]:
        """The number of channels of each stage's map; empty without stages."""
        return ()

    @contextmanager
    def stages_hooked(self, hook: StageHook | None) -> Iterator[None]:
        """Call `hook` on the map of every stage inside this block.

        The model goes on with the map that `hook` returns. None stands for no hook.

        Raises
        ------
        ConfigError
            There is a hook, but the model has no stages.
        """
        if hook is not None:
            raise ConfigError(
                f"a {type(self).__name__} has no stages; take a network with stages"
            )
        yield

    @property
    def norm_modules(self) -> list[nn.Module]:
        """The normalisation layers with running statistics, in module order."""
        return norm_modules(self)

    @property
    def norm_mask(self) -> Tensor:
        """Which of the P + Q numbers belong to `norm_modules`: bool, (P + Q,)."""
        return norm_mask(self)

    @contextmanager
    def frozen_statistics(self) -> Iterator[None]:
        """Keep running statistics unchanged inside this block, also in training."""
        kept = [(module, module.momentum) for module in self.norm_modules]
        for module, _ in kept:
            module.momentum = 0.0  # type: ignore[assignment]
        try:
            yield
        finally:
            for module, momentum in kept:
                module.momentum = momentum

    @staticmethod
    def probabilities(logits: Tensor) -> Tensor:
        """The published probabilities ``(1 - s) softmax + s / C``; s is `SMOOTHING`.

        Logits are [n, C]. Classes keep their order.
        """
        return with_equal_part(logits.softmax(dim=1), SMOOTHING)

    @staticmethod
    def offsets(logits: Tensor) -> Tensor:
        """`OFFSET_SHARE` times the logarithms of `probabilities`: [n, C].

        They are added to the logits of a head that learns what this one lacks.
        """
        return OFFSET_SHARE * Model.probabilities(logits).log()

    def in_chunks(self, fn: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Apply `fn`, such as `represent`, to all rows [n, D]: Tensor of shape (n,
        ...).

        Rows are prepared and given to `fn` in chunks, on the model's device, in
        evaluation mode and without gradients.
        """
        device, was_training = next(self.parameters()).device, self.training
        self.eval()
        try:
            with torch.no_grad():
                parts = rows.split(_chunk_sizes(len(rows), self.chunk_rows))
                return torch.cat([fn(self.prepare(part.to(device))) for part in parts])
        finally:
            self.train(was_training)

    def at(self, vector: Tensor) -> Model:
        """A frozen copy of the model in evaluation mode, with the numbers of `vector`.

        `vector` has shape (P + Q,), or (P,) to keep the running statistics of this
        model.
        """
        other = copy.deepcopy(self)
        load_vector(other, vector)
        return other.eval().requires_grad_(False)

    @property
    def can_cool(self) -> bool:
        """Whether `cool` can divide the logits of this model."""
        return type(self).cool is not Model.cool

    def cool(self, temperature: float) -> None:
        """Divide the logits by `temperature`, in place.

        Raises
        ------
        TypeError
            The logits of this model cannot be divided.
        """
        kind = type(self).__name__
        raise TypeError(f"the logits of a {kind} cannot be divided")

    def uncalibrated(self, logits: Tensor, temperature: float) -> Tensor | None:
        """The logits [n, C] before calibration, given those of this calibrated model.

        They were divided by `temperature`. None if calibration changed nothing.
        """
        return None if temperature == 1.0 else logits * temperature

    def to_leave(self) -> Model:
        """The model that a run scores and saves in place of this trained one."""
        return self

    def gradient_accumulator(self, into: Tensor, beta: float) -> Accumulator:
        """A function of (features [B, D], labels [B]) that adds the gradient to `into`.

        It sets ``into = beta * into + gradient``, of shape (P,), in place. The gradient
        is that of the batch's `loss` at the present parameters. With beta = 0, old
        values are overwritten.
        """

        def accumulate(features: Tensor, labels: Tensor) -> None:
            with torch.enable_grad():
                loss = self.loss(self(features), labels)
            add_autograd_gradient(self, loss, into, beta)

        return accumulate


def _chunk_sizes(rows: int, size: int) -> list[int]:
    """The sizes of chunks for `rows` rows: `size` rows each, and the rest.

    A small rest joins the last chunk, because torch multiplies a single row by other
    code, with other rounding.
    """
    full, rest = divmod(rows, size)
    if full and rest < size // 8:
        return [size] * (full - 1) + [size + rest]
    return [size] * full + ([rest] if rest or not full else [])


def with_equal_part(shares: Tensor, part: float) -> Tensor:
    """Probabilities [n, C] of which this part is shared equally by all classes."""
    return (1 - part) * shares + part / shares.shape[1]


def cool_layer(layer: nn.Linear, temperature: float) -> None:
    """Divide the outputs of a linear layer by `temperature`, in place."""
    with torch.no_grad():
        layer.weight.copy_(layer.weight.double() / temperature)
        layer.bias.copy_(layer.bias.double() / temperature)


def add_autograd_gradient(
    model: Model, loss: Tensor, into: Tensor, beta: float
) -> None:
    """Set ``into = beta * into + d loss / d parameters`` [P], by autograd."""
    parameters = list(model.parameters())
    # A loss on the representation alone has no gradient in the last layer. A loss that
    # is constant for this batch has no gradient at all.
    gradients: Sequence[Tensor | None] = [None] * len(parameters)
    if loss.requires_grad:
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = zip(gradients, parameters)
    parts = [(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs]
    flat = torch.cat(parts)
    if beta:
        into.mul_(beta).add_(flat)
    else:
        into.copy_(flat)


class OtherModel:
    """The settings of a model in place of a head. A subclass is a frozen dataclass.

    Attributes
    ----------
    takes_images : bool
        As in the models that it builds, see `Model.takes_images`.
    told : str
        What a run's description says of the model, in place of its space.
    """

    takes_images: ClassVar[bool] = False
    told: ClassVar[str] = ""

    @classmethod
    def objections(cls, run: Any) -> Objections:
        """Yield the settings of a run that conflict with this kind of model.

        It is asked whether or not the run chooses it.
        """
        return ()

    @classmethod
    def of_run(cls, run: Any) -> OtherModel:
        """The settings of the model of a run. ``run[field]`` is a setting's value."""
        raise NotImplementedError

    @classmethod
    def agreed(cls, run: Any) -> Mapping[str, object]:
        """Further settings that all sides share, by name, if the run chooses it."""
        return {}

    def build(self, in_features: int, num_classes: int, dropout: float = 0.0) -> Model:
        """Build the model.

        Raises
        ------
        ConfigError
            It cannot be made.
        """
        raise NotImplementedError

    @property
    def leaves_another(self) -> bool:
        """Whether the saved model is of another kind than the trained one."""
        return False

    def as_left(self) -> OtherModel:
        """The settings of the model that is scored and saved."""
        return self


#: By the setting that chooses one of the kind, such as ``"my_model.name"``. Its value
#: is a text; "" chooses none.
OTHER_MODELS: Registry[type[OtherModel]] = Registry("model", "a model's setting")
OTHER_MODELS.expect(parts_of("models"))


def register_other_model(setting: str) -> Callable[[type], type]:
    """Decorator: register a subclass of `OtherModel` by the setting that chooses it."""
    return OTHER_MODELS.registered(setting)


def chosen_other(run: Any) -> str:
    """The setting by which a run chooses a model in place of a head; "" if none."""
    return next((name for name in OTHER_MODELS if run[name]), "")
