"""The heads: linear, with one hidden layer, and the mixture of linear scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.machine import sent

from .base import Accumulator, Model, cool_layer
from .vectors import split_vector


class LinearHead(Model):
    """The linear head: logits ``W x + b``. Its representation is the logits."""

    uses_autograd = False
    first_layer = "classifier"

    def __init__(self, in_features: int, num_classes: int):
        super().__init__(in_features, num_classes)
        self.classifier = nn.Linear(in_features, num_classes)

    def represent(self, features: Tensor) -> Tensor:
        return self.classifier(features)

    def cool(self, temperature: float) -> None:
        cool_layer(self.classifier, temperature)

    def last_input(self, features: Tensor) -> Tensor:
        return features

    def gradient_accumulator(self, into: Tensor, beta: float) -> LinearGradient:
        return LinearGradient(self, into, beta)


class LinearGradient:
    """Adds the gradient of cross-entropy, computed by hand, to a vector.

    It does what `Model.gradient_accumulator` says. With softmax s and one-hot labels y,
    the gradient is ``dL/dlogits = (s - y) / B``.

    Parameters
    ----------
    head : LinearHead
        The gradient is taken at the weights that the head has then.
    into : Tensor of shape (P,)
    beta : float
    """

    def __init__(self, head: LinearHead, into: Tensor, beta: float):
        layer, self._beta = head.classifier, beta
        self._weight, self._bias = layer.weight.data, layer.bias.data[:, None]
        self._into_weight, self._into_bias = split_vector(head, into)
        #: By batch size B: ones [B], minus ones [1, B], logits [C, B], residual [C, B].
        self._memory: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}

    def __call__(self, features: Tensor, labels: Tensor) -> None:
        self.of(features, labels)()

    def of(self, features: Tensor, labels: Tensor) -> Callable[[], None]:
        """A function that adds the gradient of a batch [B, D] with labels [B].

        It may be called again once the batch has other rows.
        """
        size = labels.shape[0]
        if size not in self._memory:
            logits = features.new_empty(len(self._bias), size)
            ones = features.new_ones(size)
            self._memory[size] = ones, -ones[None], logits, logits.clone()
        ones, minus_ones, logits, residual = self._memory[size]
        weight, bias, beta = self._weight, self._bias, self._beta
        into_weight, into_bias, share = self._into_weight, self._into_bias, 1 / size
        transposed, rows = features.t(), labels[None]

        # Classes are the rows of `residual`: both products are faster in this order.
        def add() -> None:
            torch.mm(weight, transposed, out=logits).add_(bias)
            torch.softmax(logits, 0, out=residual)
            residual.scatter_add_(0, rows, minus_ones)
            into_weight.addmm_(residual, features, beta=beta, alpha=share)
            into_bias.addmv_(residual, ones, beta=beta, alpha=share)

        return add


class Dropout(nn.Dropout):
    """Works as `nn.Dropout`, but always draws on the CPU, from a generator of its own.

    Attributes
    ----------
    generator : torch.Generator or None
        None draws from torch's global generator.
    """

    generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        kept = self.kept(x)
        return x if kept is None else x * kept

    def kept(self, x: Tensor) -> Tensor | None:
        """What each entry of `x` is multiplied by; None if nothing is dropped."""
        if not self.training or self.p == 0:
            return None
        kept = torch.empty(x.shape, dtype=x.dtype, device="cpu")
        kept = kept.bernoulli_(1 - self.p, generator=self.generator).div_(1 - self.p)
        return sent(kept, x.device)


def draw_from(model: nn.Module, generator: torch.Generator | None) -> bool:
    """Let all dropout layers draw from `generator`; None: from torch's global one.

    Returns whether some layers are torch's own, which know only the global generator.
    """
    others = False
    for layer in model.modules():
        if isinstance(layer, Dropout):
            layer.generator = generator
        else:
            others |= isinstance(layer, nn.modules.dropout._DropoutNd)
    return others


class MLPHead(Model):
    """A head with one hidden layer, whose output is the representation.

    Rows in training may have C columns more: the `offsets` of another head, which
    `forward` adds to their logits. So this head learns what the other one lacks.
    `represent` knows no offsets.

    Parameters
    ----------
    in_features, num_classes : int
    hidden : int
        Units of the hidden layer. This is D' of the representation.
    dropout : float
        The probability that training drops a hidden unit, in [0, 1).
    """

    first_layer = "hidden"

    def __init__(
        self, in_features: int, num_classes: int, hidden: int, dropout: float = 0.0
    ):
        super().__init__(in_features, num_classes)
        self.hidden = nn.Linear(in_features, hidden)
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(hidden, num_classes)

    def parted(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Rows [..., D], and the offsets [..., C] beside them; None without offsets."""
        dim = self.in_features
        if features.shape[-1] != dim + self.num_classes:
            return features, None
        return features[..., :dim], features[..., dim:]

    def forward(self, features: Tensor) -> Tensor:
        rows, offsets = self.parted(features)
        logits = super().forward(rows)
        return logits if offsets is None else logits + offsets

    def represent(self, features: Tensor) -> Tensor:
        return F.relu(self.hidden(features))

    def cool(self, temperature: float) -> None:
        cool_layer(self.classifier, temperature)

    def last_input(self, features: Tensor) -> Tensor:
        return self.represent(features)

    def classify(self, representation: Tensor) -> Tensor:
        return self.classifier(self.dropout(representation))

    def gradient_accumulator(self, into: Tensor, beta: float) -> Accumulator:
        if type(self) is not MLPHead:  # it may compute something else
            return super().gradient_accumulator(into, beta)
        return MLPGradient(self, into, beta)


class MLPGradient:
    """Adds the gradient of cross-entropy, computed by hand, to a vector.

    Parameters and calls are as in `LinearGradient`. The operations are autograd's, so
    the bits are, too. They take less than half of its time.
    """

    def __init__(self, head: MLPHead, into: Tensor, beta: float):
        self._dropout, self._beta, self._parted = head.dropout, beta, head.parted
        self._weights = [parameter.data for parameter in head.parameters()]
        self._parts = split_vector(head, into)

    def __call__(self, features: Tensor, labels: Tensor) -> None:
        first, first_bias, last, last_bias = self._weights
        features, offsets = self._parted(features)
        hidden = torch.addmm(first_bias, features, first.t()).relu_()
        kept = self._dropout.kept(hidden)
        units = hidden if kept is None else hidden * kept
        logits = torch.addmm(last_bias, units, last.t())
        if offsets is not None:
            logits = logits + offsets
        logs = logits.log_softmax(1)
        of_logs = torch.zeros_like(logs)
        of_logs.scatter_(1, labels[:, None], -1 / len(labels))
        aten = torch.ops.aten
        residual = aten._log_softmax_backward_data(of_logs, logs, 1, logs.dtype)
        back = residual @ last
        if kept is not None:
            back *= kept
        back = aten.threshold_backward(back, hidden, 0)
        of_first = back.t() @ features, back.sum(0)
        of_last = residual.t() @ units, residual.sum(0)
        for part, gradient in zip(self._parts, (*of_first, *of_last)):
            if self._beta:
                part.mul_(self._beta).add_(gradient)
            else:  # whatever was there, NaN as well
                part.copy_(gradient)


class MixtureHead(Model):
    """The mixture head: a class has one or more components j.

    The logits are ``s log sum_{j of c} exp(w_j x + b_j)``. If classes have precisions
    P_c, let ``z = x - m``. Then they are ``s (log sum_{j of c} exp(w_j z + b_j) - z P_c
    z / 2)``.

    Each class has one or more components. Their number is known only once the head is
    computed, so the length of the parameter vector may vary. The head is not trained,
    and has no last layer that could be trained. Its representation is the logits.

    Attributes
    ----------
    weight : Parameter of shape (J, D)
    bias : Parameter of shape (J,)
    classes : Parameter of shape (J,)
        The class of each component. Every class has at least one.
    scale : Parameter of shape (1,)
        s, the inverse of the temperature.
    centre : Parameter of shape (D + r,), or None
        m, and r zeros. Through these the number of all parameters tells that the head
        has precisions: see `make_room_for`.
    precisions : Parameter of shape (C, D, D), or None
        P_c.
    """

    fixed_size = False
    centre: nn.Parameter | None
    precisions: nn.Parameter | None

    def __init__(self, in_features: int, num_classes: int):
        super().__init__(in_features, num_classes)
        self.scale = nn.Parameter(torch.ones(1))
        self._make_room(num_classes)
        self.reset()

    @classmethod
    def of_components(
        cls,
        weight: Tensor,
        bias: Tensor,
        classes: Tensor,
        num_classes: int,
        centre: Tensor | None = None,
        precisions: Tensor | None = None,
    ) -> MixtureHead:
        """Make the head from weights [J, D], biases [J] and `classes` [J].

        With a `centre` [D] it has a precision [C, D, D] for each class.
        """
        model = cls(weight.shape[1], num_classes)
        model._make_room(len(weight), precisions is not None)
        with torch.no_grad():
            model.weight.copy_(weight)
            model.bias.copy_(bias)
            model.classes.copy_(classes)
            for held, given in ((model.centre, centre), (model.precisions, precisions)):
                if held is not None and given is not None:
                    held[: len(given)] = given
        return model

    @classmethod
    def of_linear(cls, head: LinearHead) -> MixtureHead:
        """Make the mixture head with the same logits as a linear head."""
        layer = head.classifier
        classes = torch.arange(head.num_classes)
        return cls.of_components(layer.weight, layer.bias, classes, head.num_classes)

    @property
    def classifier(self) -> nn.Linear:  # type: ignore[override]  # there is none
        raise ConfigError(_NO_LAST_LAYER)

    def last_input(self, features: Tensor) -> Tensor:
        raise ConfigError(_NO_LAST_LAYER)

    def reset(self, generator: torch.Generator | None = None) -> Model:
        """Set one component of zeros for each class. Nothing is drawn."""
        self._make_room(self.num_classes)
        with torch.no_grad():
            self.weight.zero_()
            self.bias.zero_()
            self.classes.copy_(torch.arange(self.num_classes))
            self.scale.fill_(1.0)
        return self

    def make_room_for(self, size: int) -> None:
        """Take as many components as a vector of `size` parameters holds.

        A component has D + 2 parameters. Beside components and the scale, a head
        without precisions has no parameter. A head with precisions has one more than a
        multiple of D + 2.

        Raises
        ------
        ConfigError
            No number of components gives exactly `size` parameters.
        """
        components, rest = divmod(size - 1, self.in_features + 2)
        if rest == 1:
            of_precisions = self._length_of_centre + self._length_of_precisions
            components -= of_precisions // (self.in_features + 2)
        if rest > 1 or components < self.num_classes:
            raise ConfigError(
                f"{size} parameters do not fit a mixture head of "
                f"{self.num_classes} classes in {self.in_features} dimensions"
            )
        self._make_room(components, precise=rest == 1)

    @property
    def _length_of_precisions(self) -> int:
        return self.num_classes * self.in_features**2

    @property
    def _length_of_centre(self) -> int:
        own = self.in_features
        return own + (1 - own - self._length_of_precisions) % (own + 2)

    def cool(self, temperature: float) -> None:
        with torch.no_grad():
            self.scale.fill_(1 / temperature)

    def represent(self, features: Tensor) -> Tensor:
        rows = features
        if self.centre is not None:
            rows = features - self.centre[: self.in_features]
        scores = rows @ self.weight.T + self.bias
        of_class = self.classes.long()
        columns = [
            scores[:, of_class == c].logsumexp(dim=1) for c in range(self.num_classes)
        ]
        logits = torch.stack(columns, dim=1)
        if self.precisions is not None:
            squares = [((rows @ one) * rows).sum(dim=1) for one in self.precisions]
            logits = logits - torch.stack(squares, dim=1) / 2
        return self.scale * logits

    def _make_room(self, components: int, precise: bool = False) -> None:
        dim, new = self.in_features, self.scale.data.new_zeros  # on its device
        self.weight = nn.Parameter(new(components, dim))
        self.bias = nn.Parameter(new(components))
        self.classes = nn.Parameter(new(components))
        self.centre = self.precisions = None
        if precise:
            self.centre = nn.Parameter(new(self._length_of_centre))
            self.precisions = nn.Parameter(new(self.num_classes, dim, dim))

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        bias = state_dict.get(f"{prefix}bias")
        if bias is not None:
            self._make_room(len(bias), f"{prefix}precisions" in state_dict)
        # Heads that are older than temperatures have no scale.
        state_dict.setdefault(f"{prefix}scale", torch.ones(1))
        super()._load_from_state_dict(state_dict, prefix, *args)


_NO_LAST_LAYER = (
    "a mixture head has no last layer to train, but calibration needs one; take a "
    "linear or MLP head"
)
