"""The text side of CLIP models. Prompts end at their last token, without padding.

Prompts are encoded as one tree of tokens, so equal beginnings are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from federatedscope_ggeur.data.encoders.open_clip import OpenClip
from federatedscope_ggeur.errors import ConfigError


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
                if (node, token) not in children:
                    children[node, token] = len(tokens)
                    tokens.append(token)
                    parents.append(node)
                    positions.append(place)
                node = children[node, token]
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


_PARTS = (
    "token_embedding",
    "positional_embedding",
    "transformer",
    "ln_final",
    "text_projection",
    "attn_mask",
)


class TextTower:
    """The frozen text transformer of a CLIP model.

    It has a causal mask, and its output is read at the end of text (EOT). So tokens
    behind the EOT change nothing, and prompts are cut there. Gradients flow to the
    inputs of `encode`, and not to the weights. A deep copy is the object itself.

    Parameters
    ----------
    side : module
        open_clip's CLIP model, or its text module: the one that has token_embedding
        etc.
    tokenize : callable (list of str) -> Tensor of shape (n, context), int64
    scale : float
        The number exp(logit_scale) of the model.

    Raises
    ------
    ConfigError
        The text side is no CLIP transformer, but e.g. a language model.
    """

    def __init__(
        self, side: nn.Module, tokenize: Callable[[Sequence[str]], Tensor], scale: float
    ):
        self._check(side)
        self._side: Any = side
        self._tokenize, self.scale = tokenize, scale
        pool = getattr(side, "text_pool_type", getattr(side, "pool_type", "argmax"))
        eos = getattr(side, "text_eos_id", getattr(side, "eos_id", None))
        if pool not in ("argmax", "eos"):
            raise ConfigError(
                "ggeur.encoder.model: the model reads its text output by "
                f"'{pool}', and not at the end of text; take one of OpenAI's models, "
                "such as ViT-B-16"
            )
        self._eos = eos if pool == "eos" else None

    @staticmethod
    def _check(side: nn.Module) -> None:
        missing = [name for name in _PARTS if not hasattr(side, name)]
        extra = getattr(side, "cls_emb", None) is not None
        if missing or extra or getattr(side, "attn_mask", None) is None:
            raise ConfigError(
                "ggeur.encoder.model: its text side is not a causal CLIP transformer "
                f"(it is a {type(side).__name__}); take one of OpenAI's models, such "
                "as ViT-B-16"
            )

    @classmethod
    def of(cls, made: OpenClip) -> TextTower:
        """Make the text tower of a model that `load_open_clip` has loaded."""
        from open_clip import get_tokenizer

        model = made.model
        scale = float(model.logit_scale.detach().exp().reshape(-1)[0])
        side = getattr(model, "text", model)
        return cls(side, get_tokenizer(made.name), scale)

    def __deepcopy__(self, memo: dict) -> TextTower:
        return self

    @property
    def device(self) -> torch.device:
        return self._side.positional_embedding.device

    @property
    def width(self) -> int:
        """d, the length of a token's embedding."""
        return self._side.token_embedding.weight.shape[1]

    @property
    def context(self) -> int:
        """The number of tokens of the longest possible prompt."""
        return len(self._side.positional_embedding)

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, from its start to its end (EOT).

        Texts that are too long are cut, as CLIP does.
        """
        tokens = self._tokenize(list(texts))
        is_end = tokens if self._eos is None else (tokens == self._eos).int()
        ends = is_end.argmax(dim=1)
        return [row[: end + 1].tolist() for row, end in zip(tokens, ends)]

    def embed(self, tokens: Tensor) -> Tensor:
        """The embeddings of tokens [N], without their positions: shape (N, d)."""
        return self._side.token_embedding(tokens)

    def encode(self, embedded: Tensor, tree: TokenTree) -> Tensor:
        """The features [n, D] of n texts, given as a tree of N nodes.

        `embedded` [N, d] are the embeddings of the nodes.
        """
        side = self._side
        x = (embedded + side.positional_embedding[tree.positions])[None]
        mask = tree.mask.to(x.dtype)
        if hasattr(side.transformer, "batch_first"):
            x = side.transformer(x, attn_mask=mask)[0]
        else:  # before open_clip 2.24 tokens were the first dimension
            x = side.transformer(x.transpose(0, 1), attn_mask=mask)[:, 0]
        x = side.ln_final(x[tree.ends])
        projection = side.text_projection
        if projection is None:
            return x
        return projection(x) if isinstance(projection, nn.Module) else x @ projection

    def features(self, texts: Sequence[str], size: int) -> Tensor:
        """The features [n, D] of texts, float32 on the CPU.

        `size` texts are encoded at a time. Texts with equal beginnings are encoded
        together.
        """
        tokens = self.tokens(texts)
        order = sorted(range(len(texts)), key=tokens.__getitem__)
        features = torch.empty(0)
        with torch.inference_mode():
            for first in range(0, len(order), size):
                part = order[first : first + size]
                tree = TokenTree.of([tokens[i] for i in part]).to(self.device)
                rows = self.encode(self.embed(tree.tokens), tree).float().cpu()
                if not first:
                    features = rows.new_empty(len(texts), rows.shape[1])
                features[part] = rows
        # Copied, because a tensor of inference mode cannot be part of training.
        return features.clone()
