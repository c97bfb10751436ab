"""Learnt prompts: trained vectors in place of the words of a template.

Encode prompts that have a learnt context, by a frozen text tower.

Uses the zero-shot head in training: a pull towards it, and mixtures with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.methods import LocalHooks
from federatedscope_ggeur.models import LinearHead, Model, named_tensors, to_vector

from .base import CosineHead, TextHead, TextPart, register_text_model
from .classes import ClassTexts
from .keys import OF_MODELS
from .templates import fill
from .tower import TextTower, TokenTree

#: The standard deviation of the initial vectors.
SPREAD = 0.02


class PromptHead(TextHead):
    """The head with logits ``s <x/|x|, w_c>``, where learnt prompts give w_c.

    The w_c are the unit text features of the prompts. The representation is x/|x|. The
    `source` of the context is trained.

    Parameters
    ----------
    texts : ClassTexts
        The text features. They must have `prompts`.
    source : module
        The module that maps the unit text features [C', D] of the present classes to a
        context [n, d].
    own_classes : bool
        Whether a client trains only on the classes that it holds.
    """

    def __init__(self, texts: ClassTexts, source: nn.Module, own_classes: bool = False):
        classes, dim = texts.features.shape
        super().__init__(dim, classes)
        self.source, self._texts, self._own = source, texts, own_classes
        self._classes = list(range(classes))

    def reset(self, generator: torch.Generator) -> Model:
        """Draw linear layers as `torch.nn.Linear` does, vectors from N(0, 0.02^2)."""
        with torch.no_grad():
            for parameter in self.source.parameters(recurse=False):
                parameter.normal_(0, SPREAD, generator=generator)
        return super().reset(generator)

    @contextmanager
    def of_client(self, counts: Tensor) -> Iterator[None]:
        """Use only the client's classes inside this block, if `own_classes` is set.

        `counts` [C] are the client's rows of each class.
        """
        everything = self._classes
        if self._own:
            held = torch.nonzero(counts).flatten().tolist()
            self._classes = held or everything
        try:
            yield
        finally:
            self._classes = everything

    def class_features(self) -> Tensor:
        """The unit text features of the present classes: shape (C', D)."""
        device = next(self.parameters()).device
        known = self._texts.features[self._classes].to(device)
        encoded = self._texts.prompts.encode(self.source(known), self._classes)
        return F.normalize(encoded.to(device), dim=1)

    def represent(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=1)

    def classify(self, representation: Tensor) -> Tensor:
        if not len(representation):
            return representation.new_zeros(0, self.num_classes)
        logits = self._texts.scale * representation @ self.class_features().T
        if len(self._classes) == self.num_classes:
            return logits
        wide = logits.new_full((len(logits), self.num_classes), -torch.inf)
        index = torch.tensor(self._classes, device=logits.device)
        return wide.index_copy(1, index, logits)

    def to_leave(self) -> CosineHead:
        """The head with the text features of the learnt prompts, for all classes."""
        head = CosineHead(self.in_features, self.num_classes)
        with torch.no_grad():
            head.weight.copy_(self._texts.scale * self.class_features())
        return head


class FreeContext(nn.Module):
    """A context of n vectors of d numbers, the same for all classes and clients."""

    def __init__(self, vectors: int, width: int):
        super().__init__()
        self.context = nn.Parameter(torch.zeros(vectors, width))

    def forward(self, texts: Tensor) -> Tensor:
        return self.context


def width_of(texts: ClassTexts) -> int:
    """The width d of the text tower's vectors.

    Raises
    ------
    ConfigError
        There is no text tower.
    """
    if texts.prompts is None:
        raise ConfigError("text.model: learnt prompts need the text tower's weights")
    return texts.prompts.width


@register_text_model("promptfl")
class PromptFL(TextPart):
    """The text model ``promptfl``: one context for all classes, averaged over clients.

    The context is that of CoOp.
    """

    meaning = "CoOp's vectors before each class's name, trained; the tower is frozen"
    source = "Guo 2023; Zhou 2022 (CoOp)"
    SETTINGS = OF_MODELS["promptfl"]
    learns_prompts = True

    @classmethod
    def build(cls, texts: ClassTexts, **options) -> Model:
        vectors = int(options.get("n_ctx", 16))
        return PromptHead(texts, FreeContext(vectors, width_of(texts)))


#: Classes in one sequence. More would be costly: a tree's mask is as wide as its nodes.
CLASSES = 128


class PromptedClasses:
    """The prompts ``[start] ctx name . [end]`` of all classes, cut after the end.

    All classes of a sequence share the start and the context. A deep copy is the object
    itself.

    Parameters
    ----------
    tower : TextTower
    names : sequence of str
    vectors : int
        n, the number of vectors of the context.

    Raises
    ------
    ConfigError
        The context is so long that a name would be cut off.
    """

    def __init__(self, tower: TextTower, names: Sequence[str], vectors: int):
        self._tower, self.vectors = tower, vectors
        words = "X " * vectors
        self._tokens = tower.tokens([words + fill("{}.", name) for name in names])
        longest = max(map(len, self._tokens))
        if longest >= tower.context:
            raise ConfigError(
                f"ggeur.text.model: a context of {vectors} vectors and a class's name "
                f"need more than the {tower.context} tokens of the text side; set "
                "fewer vectors"
            )
        self._trees: dict[tuple[int, ...], tuple[TokenTree, Tensor]] = {}

    def __deepcopy__(self, memo: dict) -> PromptedClasses:
        return self

    @property
    def width(self) -> int:
        return self._tower.width

    def encode(self, context: Tensor, classes: Sequence[int]) -> Tensor:
        """The features [C', D] of `classes`, differentiable in `context` [n, d]."""
        encoded = []
        for first in range(0, len(classes), CLASSES):
            part = tuple(classes[first : first + CLASSES])
            tree, embedded = self._tree(part)
            own = context.to(embedded.device)
            start, names = embedded[:1], embedded[1 + self.vectors :]
            encoded.append(self._tower.encode(torch.cat([start, own, names]), tree))
        return torch.cat(encoded)

    def _tree(self, classes: tuple[int, ...]) -> tuple[TokenTree, Tensor]:
        """The tree of the classes' prompts, and the embeddings of its nodes.

        Node 0 is the start. The nodes of the context follow.
        """
        if classes not in self._trees:
            tree = TokenTree.of([self._tokens[c] for c in classes])
            tree = tree.to(self._tower.device)
            with torch.no_grad():
                self._trees[classes] = tree, self._tower.embed(tree.tokens).clone()
        return self._trees[classes]


_WEIGHT = "classifier.weight"


@dataclass(frozen=True, eq=False)
class TextPull:
    """Adds ``strength |W - W_zs|^2`` to the loss of a linear head, W on raw embeddings.

    Attributes
    ----------
    target : Tensor of shape (C, D), float32
        W_zs.
    strength : float
    """

    target: Tensor
    strength: float
    field: ClassVar[str] = "text.regulariser"

    def added(self, hooks: LocalHooks, model: Model, space: Space) -> LocalHooks:
        """Add the gradient of the pull to `hooks`, for a `model` trained in `space`.

        The space maps x to ``x' = T (x - m)`` with T symmetric. A head W' of this space
        is ``W = W' T`` on raw embeddings. So the gradient is ``2 strength (W' T - W_zs)
        T``.
        """
        own, start, scale = hooks.add_correction, 0, 2 * self.strength
        for name, part in named_tensors(model, to_vector(model)).items():
            if name == _WEIGHT:
                break
            start += part.numel()
        end, shape = start + self.target.numel(), self.target.shape
        target = self.target.double()

        def add_correction(params: Tensor, gradient: Tensor) -> None:
            if own is not None:
                own(params, gradient)
            weight = params[start:end].view(shape).cpu().double()
            pull = space.linear(space.linear(weight) - target)
            gradient[start:end].add_(
                pull.flatten().to(gradient.device, gradient.dtype), alpha=scale
            )

        return replace(hooks, add_correction=add_correction)


@dataclass(frozen=True, eq=False)
class TextMix:
    """The head ``(1 - t) W_zs + t W`` with biases ``t b``.

    Attributes
    ----------
    target : Tensor of shape (C, D), float32
        W_zs.
    share : float
        t.

    References
    ----------
    Wortsman et al., "Robust fine-tuning of zero-shot models", 2022 (WiSE-FT).
    """

    target: Tensor
    share: float

    def mixed(self, model: Model, params: Tensor) -> Tensor:
        """Mix the weights [P] of a linear head, on raw embeddings, with W_zs."""
        assert isinstance(model, LinearHead)
        mixed = params.double() * self.share
        named_tensors(model, mixed)[_WEIGHT].add_(
            self.target.double(), alpha=1 - self.share
        )
        return mixed.float()
