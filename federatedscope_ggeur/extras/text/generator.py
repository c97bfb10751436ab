"""FedTPG: a network makes prompts from the names of a client's classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.models import Model

from .base import TextPart, register_text_model
from .classes import ClassTexts
from .keys import OF_MODELS
from .prompts import PromptHead, width_of

_HEADS, _WIDER = 4, 4


class ContextGenerator(nn.Module):
    """The network that maps text features T [C', D] to a context [n, d].

    Learnt queries [n, d] attend to T (pre-norm, four heads, K = V = T, no residual).
    Then a feed-forward layer with GEGLU, four times as wide, is added. With n = 4 and D
    = d = 512, the network has 4,206,080 numbers.

    References
    ----------
    Qiu et al., "Federated text-driven prompt generation for vision-language models",
    ICLR 2024.
    """

    def __init__(self, vectors: int, width: int, dim: int):
        super().__init__()
        self.queries = nn.Parameter(torch.zeros(vectors, width))
        self.norm_queries, self.norm_texts = nn.LayerNorm(width), nn.LayerNorm(dim)
        self.query = nn.Linear(width, width)
        self.key, self.value = nn.Linear(dim, width), nn.Linear(dim, width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 2 * _WIDER * width)
        self.narrow = nn.Linear(_WIDER * width, width)

    def forward(self, texts: Tensor) -> Tensor:
        known = self.norm_texts(texts)
        query = self._split(self.query(self.norm_queries(self.queries)))
        key, value = self._split(self.key(known)), self._split(self.value(known))
        scores = query @ key.transpose(1, 2) / query.shape[2] ** 0.5
        seen = (scores.softmax(dim=2) @ value).transpose(0, 1).flatten(1)
        seen = self.out(seen)
        content, gate = self.widen(self.norm(seen)).chunk(2, dim=1)
        return seen + self.narrow(content * F.gelu(gate))

    def _split(self, rows: Tensor) -> Tensor:
        """Rows [n, d] split by head: shape (heads, n, d / heads)."""
        return rows.view(len(rows), _HEADS, -1).transpose(0, 1)


@register_text_model("fedtpg")
class FedTPG(TextPart):
    """The text model ``fedtpg``: a `ContextGenerator`, averaged over clients.

    Each client trains on its own classes.
    """

    meaning = "a network makes the context of the names of a client's classes"
    source = "Qiu 2024"
    SETTINGS = OF_MODELS["fedtpg"]
    learns_prompts = True
    own_classes = True

    @classmethod
    def build(cls, texts: ClassTexts, **options) -> Model:
        vectors, dim = int(options.get("n_ctx", 4)), texts.features.shape[1]
        source = ContextGenerator(vectors, width_of(texts), dim)
        return PromptHead(texts, source, own_classes=True)
