"""Prompts as one tree of tokens, so that equal beginnings are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TokenTree:
    """A tree of n texts, whose nodes are tokens. Texts share the nodes of equal
    beginnings.

    With a causal mask, the output at a token depends only on the tokens up to it. So
    texts with the same beginning have the same outputs there. All N nodes form one
    sequence, in which each node attends to its ancestors and itself. This sequence
    gives the same outputs as the n texts.

    Attributes
    ----------
    tokens : Tensor of shape (N,), int64
        The token of each node. Parents stand before their children.
    positions : Tensor of shape (N,), int64
        The number of ancestors of each node.
    mask : Tensor of shape (N, N), float32
        0 if the row's node attends to the column's node, else -inf.
    ends : Tensor of shape (n,), int64
        The node of each text's last token.
    """

    tokens: Tensor
    positions: Tensor
    mask: Tensor
    ends: Tensor

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]]) -> TokenTree:
        """Make the tree of texts, given as token ids. No text may be empty."""
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
