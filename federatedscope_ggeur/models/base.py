"""What a model is: a classifier on embeddings whose parameters are one vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CPU = torch.device("cpu")
Accumulator = Callable[[Tensor, Tensor], None]


class Model(nn.Module):
    """A classifier on embeddings that gives logits, never softmax outputs.

    Subclasses define `represent` and `classify`; `forward` is one after the other. The
    last layer is `classifier`, what it takes in is `last_input`.

    Parameters
    ----------
    in_features : int
        Dimension D of the embeddings.
    num_classes : int
        Number C of classes.
    """

    #: The last layer, of weight (C, D'') and bias (C,).
    classifier: nn.Linear

    #: The name of the linear layer that embeddings go into, "" without one.
    first_layer: ClassVar[str] = ""

    #: False where `gradient_accumulator` is worked out by hand.
    uses_autograd = True

    #: False where it takes parameter vectors of several lengths, see `make_room_for`.
    fixed_size = True

    def __init__(self, in_features: int, num_classes: int):
        super().__init__()
        self.in_features = in_features
        self.num_classes = num_classes

    def represent(self, features: Tensor) -> Tensor:
        """The representation z of embeddings [n, D]: what loss terms may act on."""
        raise NotImplementedError

    def classify(self, representation: Tensor) -> Tensor:
        """Logits of shape (n, C) of a representation."""
        raise NotImplementedError

    def last_input(self, features: Tensor) -> Tensor:
        """What `classifier` takes in, of shape (n, D''), without dropout."""
        raise NotImplementedError

    def forward(self, features: Tensor) -> Tensor:
        return self.classify(self.represent(features))

    def reset(self, generator: torch.Generator) -> Model:
        """Draw the initial parameters as `torch.nn.Linear` does; returns self."""
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Linear):
                    bound = module.in_features**-0.5
                    module.weight.uniform_(-bound, bound, generator=generator)
                    module.bias.uniform_(-bound, bound, generator=generator)
        return self

    def make_room_for(self, size: int) -> None:
        """Before a vector of `size` parameters is loaded; for models that vary."""

    def at(self, vector: Tensor) -> Model:
        """A frozen copy in evaluation mode with the parameters of `vector` [P]."""
        other = copy.deepcopy(self)
        load_vector(other, vector)
        return other.eval().requires_grad_(False)

    def gradient_accumulator(self, into: Tensor, beta: float) -> Accumulator:
        """A function (features [B, D], labels [B]) that updates `into` in place.

        It does ``into = beta * into + gradient`` of the batch's mean cross-entropy at
        the model's parameters of the moment; `into` is of shape (P,), and with beta = 0
        whatever it held is overwritten.
        """

        def accumulate(features: Tensor, labels: Tensor) -> None:
            with torch.enable_grad():
                loss = F.cross_entropy(self(features), labels)
            add_autograd_gradient(self, loss, into, beta)

        return accumulate


def add_autograd_gradient(
    model: Model, loss: Tensor, into: Tensor, beta: float
) -> None:
    """``into = beta * into + d loss / d parameters`` [P], by autograd."""
    parameters = list(model.parameters())
    # A loss on the representation alone does not touch the last layer, and a term that
    # is absent from a batch touches none.
    gradients: Sequence[Tensor | None] = [None] * len(parameters)
    if loss.requires_grad:
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    flat = torch.cat(
        [
            torch.zeros_like(p).flatten() if g is None else g.flatten()
            for g, p in zip(gradients, parameters)
        ]
    )
    if beta:
        into.mul_(beta).add_(flat)
    else:
        into.copy_(flat)


def num_parameters(model: Model) -> int:
    return sum(p.numel() for p in model.parameters())


def to_vector(model: Model) -> Tensor:
    """A copy of all parameters as one vector of shape (P,), in `parameters()` order."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def load_vector(model: Model, vector: Tensor) -> None:
    """Copy `vector` of shape (P,) into the model's parameters."""
    model.make_room_for(len(vector))
    with torch.no_grad():
        for parameter, part in zip(model.parameters(), split_vector(model, vector)):
            parameter.copy_(part)


def split_vector(model: Model, vector: Tensor) -> list[Tensor]:
    """`vector` of shape (P,) as views in the shapes of the model's parameters."""
    sizes = [p.numel() for p in model.parameters()]
    parts = vector.split(sizes)
    return [part.view(p.shape) for part, p in zip(parts, model.parameters())]


def bind_vector(model: Model, vector: Tensor) -> None:
    """Make its parameters views of `vector`: to change one changes the other."""
    for parameter, part in zip(model.parameters(), split_vector(model, vector)):
        parameter.data = part


def named_tensors(model: Model, vector: Tensor) -> dict[str, Tensor]:
    """`vector` of shape (P,) as a state dict of the model."""
    names = [name for name, _ in model.named_parameters()]
    return dict(zip(names, split_vector(model, vector)))
