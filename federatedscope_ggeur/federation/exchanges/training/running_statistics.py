"""Averages the running statistics of a network's normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from federatedscope_ggeur.methods import Update
from federatedscope_ggeur.methods.base import weighted_mean
from federatedscope_ggeur.models import Model, load_vector, num_buffers


def mean_running_statistics(
    model: Model, params: Tensor, updates: Sequence[Update]
) -> Tensor:
    """The mean of clients' running statistics in a round: Tensor of shape (Q,).

    The mean is loaded into `model`, for methods that run the model on the server. It is
    the same for every method, since a step beyond the mean could make variances
    negative.

    Parameters
    ----------
    model : Model
    params : Tensor of shape (P + Q,)
        The global model's weights before the round. Their running statistics are kept
        if no client has data, or if weights stay with the clients.
    updates : sequence of Update
        The clients' updates, in client order, with weights [P + Q].
    """
    size = num_buffers(model)
    if not size:
        return params[:0]
    trained, before = params[:-size], params[-size:]
    parts = [replace(u, params=u.params[-size:]) for u in updates if len(u.params)]
    mean = weighted_mean(before, parts)
    load_vector(model, torch.cat([trained, mean]))
    return mean
