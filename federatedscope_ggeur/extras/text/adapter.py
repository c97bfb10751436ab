"""FedCLIP's adapter: attention over the dimensions of image features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.models import Model

from .base import TextHead, TextPart, register_text_model
from .classes import ClassTexts


class AdapterHead(TextHead):
    """FedCLIP's head: attention over dimensions, then logits ``s <x', w_c>``.

    ``x' = norm(a(x) * x)`` with ``a(x) = softmax(W2 tanh(W1 x + b1) + b2)``. The
    representation is x'. The text features w_c are frozen. They are part of the state
    dict, but are not sent.

    A batch has B pairs of image and text. Its loss is
    ``(CE(L, 1..B) + CE(L^T, 1..B)) / 2``, where L_ij = s <x'_i, w_{y_j}>. Other images
    of the same class count as negatives.

    References
    ----------
    Lu et al., "FedCLIP: Fast generalization and personalization for CLIP in federated
    learning", 2023.
    """

    first_layer = ""
    least_batch = 2  # the loss compares pairs
    texts: Tensor
    scale: Tensor

    def __init__(self, texts: ClassTexts):
        classes, dim = texts.features.shape
        super().__init__(dim, classes)
        self.inner, self.outer = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.register_buffer("texts", texts.features.clone())
        self.register_buffer("scale", torch.tensor(float(texts.scale)))

    def represent(self, features: Tensor) -> Tensor:
        attention = self.outer(torch.tanh(self.inner(features))).softmax(dim=1)
        return F.normalize(attention * features, dim=1)

    def classify(self, representation: Tensor) -> Tensor:
        return self.scale * representation @ self.texts.T

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        pairs = logits[:, labels]
        own = torch.arange(len(labels), device=labels.device)
        return (F.cross_entropy(pairs, own) + F.cross_entropy(pairs.T, own)) / 2


@register_text_model("fedclip")
class FedCLIP(TextPart):
    """The text model ``fedclip``: an `AdapterHead`, of which W1, b1, W2 and b2 are
    trained.

    Clients and server exchange only these four.
    """

    meaning = "attention over the dimensions of embeddings, trained; text is frozen"
    source = "Lu 2023"

    @classmethod
    def build(cls, texts: ClassTexts, **options) -> Model:
        return AdapterHead(texts)
