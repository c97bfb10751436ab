"""Training on the pooled rows of all clients, as an upper bound."""

from __future__ import annotations

from .base import Method
from .registry import register_method


@register_method("centralised")
class Centralised(Method):
    """FedAvg with one client that has the training rows of all clients.

    See `federatedscope_ggeur.data.partition`.
    """

    meaning = (
        "an upper bound: one client has the training rows of all clients, and trains"
    )
    pools_data = True
