"""Class means of the representation; clients send them without counts."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.models import Model

from .base import Tensors
from .contexts import Specs, TensorSpec, value_problem


def class_means_specs(model: Model) -> Specs:
    """The tensors to send: ``means`` [C, D'], and ``known`` [C], 1 for sent classes."""
    return {
        "means": TensorSpec((model.num_classes, model.width)),
        "known": TensorSpec((model.num_classes,), torch.int64),
    }


def class_means_problem(upload: Tensors) -> str:
    """Why to refuse a client's class means of the right shapes; "" if they are good."""
    known = upload["known"]
    if ((known != 0) & (known != 1)).any():
        return "'known' must be 0 or 1"
    if upload["means"][known == 0].any():
        return "'means' must be 0 for classes that are not 'known'"
    return value_problem("'means'", upload["means"])


def class_means(
    model: Model, features: Tensor, labels: Tensor, wanted: Tensor
) -> Tensors:
    """Class means of the representation of rows [n, D] by `model`.

    Only `wanted` classes [C] with rows get means. Other means are zero.
    """
    counts = torch.bincount(labels, minlength=len(wanted))
    known = wanted & (counts > 0)
    means = torch.zeros(len(wanted), model.width, device=labels.device)
    if len(features):
        z = model.in_chunks(model.represent, features)
        means = means.index_add(0, labels, z) / counts.clamp(min=1)[:, None]
    return {"means": means * known[:, None], "known": known.long()}
