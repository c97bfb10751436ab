"""What a client and its server know of each other's messages beforehand."""

from __future__ import annotations

from federatedscope_ggeur.federation.wire import Contract, StatisticsForm
from federatedscope_ggeur.heads import Head, num_parameters
from federatedscope_ggeur.methods import Method


def contract_of(head: Head, method: Method, statistics: StatisticsForm) -> Contract:
    """The contract of a federation that trains `head` by `method`."""
    size = num_parameters(head) if method.federated else 0
    return Contract(head.num_classes, head.in_features, size, statistics)
