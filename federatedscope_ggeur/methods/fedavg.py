"""FedAvg (McMahan et al., 2017)."""

from __future__ import annotations

from .base import Method
from .registry import register_method


@register_method("fedavg")
class FedAvg(Method):
    """The next weights are the weighted mean of the clients' weights.

    The weight of client k is its aggregation weight n_k, usually its number of rows.
    """

    meaning = "mean of the clients' weights, each counted n_k times"
    source = "McMahan 2017"
    robust = True
