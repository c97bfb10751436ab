"""Move a model's parameters between a space and raw embeddings, or to another kind.

The mean of the probabilities of two heads, as one head.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.geometry import Space

from .base import Model, with_equal_part
from .heads import LinearHead, MixtureHead, MLPHead
from .vectors import load_vector, named_tensors, to_vector


class AverageHead(Model):
    """The mean of the probabilities of a one-shot head and of a trained head.

    The mean is ``p = s softmax(a(x)) + (1 - s) softmax(b(x))``, where a and b are the
    logits of the two heads. A trained head that learnt with offsets also gets them
    here: those of the one-shot head are added to b(x). With the temperature T and the
    floor e the probabilities are ``(1 - e) softmax(log(p) / T) + e / C``, and the
    logits are their logarithms. The model is not trained.

    Parameters
    ----------
    in_features, num_classes : int
    hidden : int
        The hidden units of the trained head; 0 for a linear one.

    Attributes
    ----------
    share : Parameter of shape (1,)
        s: 1 for the one-shot head alone, 0 for the trained head alone.
    offset : Parameter of shape (1,)
        1 if the trained head learnt with offsets, else 0.
    temperature : Parameter of shape (1,)
        T.
    floor : Parameter of shape (1,)
        e. It says how often labels are wrong. T cannot say it: labels are wrong also
        where the head is sure.
    known : Parameter of shape (C,)
        1 for the classes that the one-shot head knows, else 0. In a mean, it says how
        the trained head's probability of all these divides among them. Other classes
        have the trained head's probabilities.
    one_shot : MixtureHead
    trained : MixtureHead or MLPHead
        A linear head is a mixture head with one component for each class.
    """

    fixed_size = False

    def __init__(self, in_features: int, num_classes: int, hidden: int = 0):
        super().__init__(in_features, num_classes)
        self.hidden = hidden
        self.share = nn.Parameter(torch.ones(1))
        self.offset = nn.Parameter(torch.zeros(1))
        self.temperature = nn.Parameter(torch.ones(1))
        self.floor = nn.Parameter(torch.zeros(1))
        self.known = nn.Parameter(torch.ones(num_classes))
        self.one_shot = MixtureHead(in_features, num_classes)
        self.trained: MixtureHead | MLPHead = MixtureHead(in_features, num_classes)
        if hidden:
            self.trained = MLPHead(in_features, num_classes, hidden)
        self.reset()

    def alone(
        self, head: MixtureHead | LinearHead | MLPHead, trained: bool
    ) -> AverageHead:
        """Another head, with the probabilities of `head` as one-shot or trained part.

        A mixture with several components for a class is one-shot.
        """
        model = AverageHead(self.in_features, self.num_classes, self.hidden)
        if isinstance(head, LinearHead):
            head = MixtureHead.of_linear(head)
        if trained:
            model.trained = head
            model.share.data.zero_()
        else:
            assert isinstance(head, MixtureHead), "a one-shot head has no hidden layer"
            model.one_shot = head
        return model

    def _load_from_state_dict(self, state: dict, prefix: str, *rest) -> None:
        # Heads of earlier releases had none of these.
        state.setdefault(f"{prefix}known", torch.ones(self.num_classes))
        state.setdefault(f"{prefix}offset", torch.zeros(1))
        state.setdefault(f"{prefix}temperature", torch.ones(1))
        state.setdefault(f"{prefix}floor", torch.zeros(1))
        super()._load_from_state_dict(state, prefix, *rest)

    def reset(self, generator: torch.Generator | None = None) -> Model:
        """Set all weights to zero. Nothing is drawn."""
        self.share.data.fill_(1.0)
        self.offset.data.zero_()
        self.temperature.data.fill_(1.0)
        self.floor.data.zero_()
        self.known.data.fill_(1.0)
        for part in (self.one_shot, self.trained):
            if isinstance(part, MixtureHead):
                part.reset()
            else:
                load_vector(part, torch.zeros_like(to_vector(part)))
        return self

    def make_room_for(self, size: int) -> None:
        """Resize the one-shot part, so that the whole model has `size` parameters."""
        kept = sum(p.numel() for p in self.trained.parameters())
        kept += sum(p.numel() for p in self.parameters(recurse=False))
        self.one_shot.make_room_for(size - kept)

    def cool(self, temperature: float) -> None:
        self.temperature.data.mul_(temperature)

    def uncalibrated(self, logits: Tensor, temperature: float) -> Tensor | None:
        e = self.floor.item()
        if not e:
            return super().uncalibrated(logits, temperature)
        above = logits.softmax(dim=1) - e / self.num_classes
        # Rounding can leave nothing above the floor.
        least = torch.finfo(above.dtype).tiny
        return (above / (1 - e)).clamp(min=least).log() * temperature

    def represent(self, features: Tensor) -> Tensor:
        return self.mixed(self.halves(self.one_shot(features), features))

    def classify(self, representation: Tensor) -> Tensor:
        if not self.floor:
            return representation
        shares = representation.softmax(dim=1)
        return with_equal_part(shares, self.floor.item()).log()

    def halves(self, one_shot: Tensor, features: Tensor) -> Tensor:
        """The log-probabilities [2, n, C] of both heads for rows [n, D].

        `one_shot` [n, C] is a(x).
        """
        trained = self.trained(features)
        if self.offset:
            trained = trained + self.offsets(one_shot)
        parts = torch.stack([one_shot, trained]).log_softmax(dim=2)
        if not self.known.all():
            parts[0] = self._completed(parts[0], parts[1])
        return parts

    def mixed(self, halves: Tensor, share: float | None = None) -> Tensor:
        """The logits [n, C] of the mean. `share`, if it is given, stands for s."""
        first = self.share if share is None else self.share.new_tensor([share])
        logs = halves + torch.cat([first, 1 - first]).log()[:, None, None]
        return logs.logsumexp(dim=0) / self.temperature

    def _completed(self, one_shot: Tensor, trained: Tensor) -> Tensor:
        """The one-shot head's log-probabilities [n, C], completed for classes that it
        does not know by those of the trained head."""
        unknown = self.known == 0
        inside = one_shot.masked_fill(unknown, float("-inf")).log_softmax(dim=1)
        whole = trained.masked_fill(unknown, float("-inf")).logsumexp(dim=1)
        return torch.where(unknown, trained, inside + whole[:, None])


@dataclass(frozen=True)
class Averaging:
    """How a one-shot head and a trained head are averaged.

    Attributes
    ----------
    share : float
        The one-shot head's share.
    floor : float
        The floor of the mean's probabilities; see `AverageHead`.
    with_offsets : bool
        Whether the trained head learns with the one-shot head's offsets; see `MLPHead`.
    unsent : tuple of int
        The classes that nobody sent statistics of. The one-shot head does not know
        them.
    confounded : bool
        Whether labels and domains are confounded in part. Rows of the same clients then
        say nothing of the shares.
    """

    share: float = 0.5
    floor: float = 0.0
    with_offsets: bool = False
    unsent: tuple[int, ...] = ()
    confounded: bool = False

    @property
    def alone(self) -> bool:
        """Whether the trained head learns without offsets, and from draws too.

        It does if it has to tell what the one-shot head cannot.
        """
        return self.confounded or bool(self.unsent)


def averaged(
    model: Model, one_shot: Tensor, trained: Tensor, averaging: Averaging
) -> Tensor:
    """The parameters of the mean of two heads that are each alone in an `AverageHead`.

    `one_shot` and `trained` are the parameters of these heads. The mean has the
    temperature 1.
    """
    first, mean = model.at(one_shot), model.at(trained)
    assert isinstance(first, AverageHead)
    assert isinstance(mean, AverageHead)
    mean.one_shot = first.one_shot
    mean.share.data.fill_(averaging.share)
    mean.floor.data.fill_(averaging.floor)
    mean.offset.data.fill_(float(averaging.with_offsets))
    mean.known.data[list(averaging.unsent)] = 0.0
    return to_vector(mean)


def calibrated(
    model: Model, params: Tensor, temperature: float, floor: float = 0.0
) -> Tensor:
    """The parameters of a head with its logits divided by `temperature`.

    Only an `AverageHead` can get a `floor`.
    """
    if temperature == 1.0 and not floor:
        return params
    head = model.at(params)
    head.cool(temperature)
    if floor:
        assert isinstance(head, AverageHead), "no other head has a floor"
        head.floor.data.fill_(floor)
    return to_vector(head)


def fold(model: Model, params: Tensor, space: Space) -> Tensor:
    """Parameters [P] that give the same logits on raw embeddings x.

    `params` [P] are for rows ``x' = T (x - m)`` in `space`. The first layer ``W' x' +
    b'`` becomes ``W x + b`` with ``W = W' T`` and ``b = b' - W m``. It is computed in
    float64 and rounded once. Other layers stay.

    Raises
    ------
    ConfigError
        The model has no linear first layer.
    """
    if space.is_raw:
        return params
    folded, weight, bias = _first_layer(model, params)
    inner = space.linear(weight.double())
    bias.copy_(bias.double() - inner @ space.centre)
    weight.copy_(inner)
    return folded


def unfold(model: Model, params: Tensor, space: Space) -> Tensor:
    """Turn parameters [P] for raw rows into parameters for rows in `space`.

    This reverses `fold`.

    The first layer becomes ``W' = W T^-1`` and ``b' = b + W m``.

    Raises
    ------
    ConfigError
        The model has no linear first layer.
    """
    if space.is_raw:
        return params
    unfolded, weight, bias = _first_layer(model, params)
    outer = weight.double()
    bias.copy_(bias.double() + outer @ space.centre)
    weight.copy_(space.inverse_linear(outer))
    return unfolded


def recast(model: Model, params: Tensor, wanted: Model, trained: bool = True) -> Tensor:
    """The parameters with which `wanted` has the logits that `model` has with `params`
    [P].

    In an average of a one-shot head and a trained one, `trained` says which it is.

    Raises
    ------
    ConfigError
        A model of that kind cannot become one of the wanted kind.
    """
    if type(model) is type(wanted):
        return params
    if isinstance(model, LinearHead) and isinstance(wanted, MixtureHead):
        load_vector(model := copy.deepcopy(model), params)
        return to_vector(MixtureHead.of_linear(model))
    heads = LinearHead, MixtureHead, MLPHead
    if isinstance(model, heads) and isinstance(wanted, AverageHead):
        load_vector(model := copy.deepcopy(model), params)
        return to_vector(wanted.alone(model, trained))
    left = model.at(params).to_leave()
    if type(left) is type(wanted):
        return to_vector(left)
    raise ConfigError(
        f"the parameters of a {type(model).__name__} cannot be those of a "
        f"{type(wanted).__name__}"
    )


def _first_layer(model: Model, params: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A copy of `params`, and in it the first layer's weight [H, D] and bias [H]."""
    if not model.first_layer:
        raise ConfigError(
            f"space: must be raw with a {type(model).__name__}, because its first "
            "layer is not linear"
        )
    params = params.clone()
    named = named_tensors(model, params)
    weight, bias = (named[f"{model.first_layer}.{name}"] for name in ("weight", "bias"))
    return params, weight, bias
