"""Encode prompts that have a learnt context, by a frozen text tower."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError

from .templates import fill
from .tower import TextTower
from .tree import TokenTree

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
        found = []
        for first in range(0, len(classes), CLASSES):
            part = tuple(classes[first : first + CLASSES])
            tree, embedded = self._tree(part)
            own = context.to(embedded.device)
            start, names = embedded[:1], embedded[1 + self.vectors :]
            found.append(self._tower.encode(torch.cat([start, own, names]), tree))
        return torch.cat(found)

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
