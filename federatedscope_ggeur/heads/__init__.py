"""Classifiers on embeddings."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.heads.base import (
    Head,
    add_autograd_gradient,
    bind_vector,
    load_vector,
    named_tensors,
    num_parameters,
    split_vector,
    to_vector,
)
from federatedscope_ggeur.heads.linear import LinearHead
from federatedscope_ggeur.heads.mlp import MLPHead


@dataclass(frozen=True)
class HeadSettings:
    """Which head: `hidden` units (0 for the linear head) and their dropout."""

    hidden: int = 0
    dropout: float = 0.0


def build_head(in_features: int, num_classes: int, settings: HeadSettings) -> Head:
    """The head for embeddings of `in_features` dimensions and `num_classes` classes."""
    if settings.hidden == 0:
        return LinearHead(in_features, num_classes)
    return MLPHead(in_features, num_classes, settings.hidden, settings.dropout)


__all__ = [
    "Head",
    "HeadSettings",
    "LinearHead",
    "MLPHead",
    "add_autograd_gradient",
    "bind_vector",
    "build_head",
    "load_vector",
    "named_tensors",
    "num_parameters",
    "split_vector",
    "to_vector",
]
