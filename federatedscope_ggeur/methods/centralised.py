"""All data in one place, as an upper bound for a federation."""

from __future__ import annotations

from federatedscope_ggeur.methods.base import Method
from federatedscope_ggeur.methods.registry import register_method


@register_method("centralised")
class Centralised(Method):
    """FedAvg with one client that has the training rows of all clients.

    See `federatedscope_ggeur.data.centralise`.
    """

    meaning = (
        "a bound: the training rows of all clients, as they are dealt, are those of "
        "one client, which trains"
    )
    pools_data = True
