"""Prompts as one tree of tokens, so that what they begin with is worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TokenTree:
    """The distinct beginnings of n texts, a node each.

    In a transformer with a causal mask what a token becomes depends on those before it
    alone. So texts with the same beginning share it, and one sequence of all N nodes,
    in which a node attends to its ancestors and itself, gives what n texts give.

    Attributes
    ----------
    tokens : Tensor of shape (N,), int64
        Parents stand before their children.
    positions : Tensor of shape (N,), int64
        How many ancestors a node has.
    mask : Tensor of shape (N, N), float32
        0 where row's node attends to column's, else -inf.
    ends : Tensor of shape (n,), int64
        The node of each text's last token.
    """

    tokens: Tensor
    positions: Tensor
    mask: Tensor
    ends: Tensor

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]]) -> TokenTree:
        """Of texts as token ids, one token each at least."""
        children: dict[tuple[int, int], int] = {}
        tokens: list[int] = []
        parents: list[int] = []
        positions: list[int] = []
        ends = []
        for text in texts:
            node = -1
            for place, token in enumerate(text):
                found = children.get((node, token))
                if found is None:
                    found = children[node, token] = len(tokens)
                    tokens.append(token)
                    parents.append(node)
                    positions.append(place)
                node = found
            ends.append(node)
        mask = np.full((len(tokens), len(tokens)), -np.inf, dtype=np.float32)
        for node, parent in enumerate(parents):
            if parent >= 0:
                mask[node] = mask[parent]
            mask[node, node] = 0
        return cls(
            torch.tensor(tokens),
            torch.tensor(positions),
            torch.from_numpy(mask),
            torch.tensor(ends),
        )

    def to(self, device: torch.device) -> TokenTree:
        held = (self.tokens, self.positions, self.mask, self.ends)
        return TokenTree(*(tensor.to(device) for tensor in held))
