"""What a model is: a classifier on embeddings whose parameters are one vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models.vectors import load_vector, norm_mask, norm_modules

CPU = torch.device("cpu")
Accumulator = Callable[[Tensor, Tensor], None]
#: (k, the map [B, C_k, H, W] of stage k) -> the map that training goes on with.
StageHook = Callable[[int, Tensor], Tensor]


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

    #: Rows that it is run on at a time where nothing is trained.
    chunk_rows = 8192

    #: True where rows are images, see `networks`.
    takes_images = False

    #: Batches of fewer rows are passed over in training.
    least_batch = 1

    #: False where it takes parameter vectors of several lengths, see `make_room_for`.
    fixed_size = True

    def __init__(self, in_features: int, num_classes: int):
        super().__init__()
        self.in_features = in_features
        self.num_classes = num_classes

    def prepare(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Rows [B, D] as data has them, of any dtype, as the model takes them: float32.

        With a `generator`, in training, images are augmented by draws of it.
        Embeddings are taken as they are.
        """
        return rows

    def represent(self, features: Tensor) -> Tensor:
        """The representation z of prepared rows [n, D]: what loss terms may act on."""
        raise NotImplementedError

    def classify(self, representation: Tensor) -> Tensor:
        """Logits of shape (n, C) of a representation."""
        raise NotImplementedError

    def last_input(self, features: Tensor) -> Tensor:
        """What `classifier` takes in, of shape (n, D''), without dropout."""
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What training lowers, of logits [B, C] and labels [B]: cross-entropy."""
        return F.cross_entropy(logits, labels)

    @contextmanager
    def of_client(self, counts: Tensor) -> Iterator[None]:
        """Within, it is trained by a client that holds `counts` [C] rows of classes."""
        yield

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

    @property
    def width(self) -> int:
        """D', the columns of a representation."""
        return self.represent(torch.zeros(0, self.in_features)).shape[1]

    @property
    def stage_widths(self) -> tuple[int, ...]:
        """C_k, the channels of the map of each stage; empty where there are none."""
        return ()

    @contextmanager
    def stages_hooked(self, hook: StageHook | None) -> Iterator[None]:
        """Within, `hook` is called with every stage's map and gives what goes on.

        Raises
        ------
        ConfigError
            There is a hook but the model has no stages.
        """
        if hook is not None:
            raise ConfigError(f"a {type(self).__name__} has no stages to act on")
        yield

    @property
    def norm_modules(self) -> list[nn.Module]:
        """Its normalisation layers with running statistics, in module order."""
        return norm_modules(self)

    @property
    def norm_mask(self) -> Tensor:
        """Which of its P + Q numbers are theirs: Tensor of shape (P + Q,), bool."""
        return norm_mask(self)

    @contextmanager
    def frozen_statistics(self) -> Iterator[None]:
        """Within, running statistics stay, in training mode too."""
        kept = [(module, module.momentum) for module in self.norm_modules]
        for module, _ in kept:
            module.momentum = 0.0  # type: ignore[assignment]
        try:
            yield
        finally:
            for module, momentum in kept:
                module.momentum = momentum

    def in_chunks(self, fn: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """`fn` of all rows [n, D], as data has them: Tensor of shape (n, ...).

        They are prepared and given to `fn`, such as `represent`, some at a time, on the
        model's device, in evaluation mode and without gradients.
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
        """A frozen copy in evaluation mode with the numbers of `vector`, [P + Q], or
        [P] with running statistics as they stand."""
        other = copy.deepcopy(self)
        load_vector(other, vector)
        return other.eval().requires_grad_(False)

    def gradient_accumulator(self, into: Tensor, beta: float) -> Accumulator:
        """A function (features [B, D], labels [B]) that updates `into` in place.

        It does ``into = beta * into + gradient`` of the batch's `loss` at
        the model's parameters of the moment; `into` is of shape (P,), and with beta = 0
        whatever it held is overwritten.
        """

        def accumulate(features: Tensor, labels: Tensor) -> None:
            with torch.enable_grad():
                loss = self.loss(self(features), labels)
            add_autograd_gradient(self, loss, into, beta)

        return accumulate


def _chunk_sizes(rows: int, size: int) -> list[int]:
    """Chunks of `size` rows; few that are left join the last one, for torch multiplies
    a single row by other means, with other rounding."""
    full, rest = divmod(rows, size)
    if full and rest < size // 8:
        return [size] * (full - 1) + [size + rest]
    return [size] * full + ([rest] if rest or not full else [])


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
