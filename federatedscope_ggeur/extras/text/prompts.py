"""Learnt prompts: trained vectors in place of the words of a template."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models.base import Model

from .base import CosineHead, TextPart, no_last_layer, register_text_model
from .classes import ClassTexts
from .keys import OF_MODELS

#: The standard deviation of the initial vectors.
SPREAD = 0.02


class PromptHead(Model):
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

    @property
    def classifier(self) -> nn.Linear:  # type: ignore[override]  # text stands there
        raise no_last_layer(self)

    def last_input(self, features: Tensor) -> Tensor:
        return self.represent(features)

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
        found = self._texts.prompts.encode(self.source(known), self._classes)
        return F.normalize(found.to(device), dim=1)

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
