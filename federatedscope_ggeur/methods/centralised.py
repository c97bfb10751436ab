"""All data in one place: the upper bound for a federation."""

from __future__ import annotations

from federatedscope_ggeur.methods.base import Method
from federatedscope_ggeur.methods.registry import register_method


@register_method("centralised")
class Centralised(Method):
    """FedAvg over one client, which has all clients' training rows.

    See `federatedscope_ggeur.data.centralise`.
    """

    meaning = (
        "a bound: the training rows of all clients, as they are dealt, are those of "
        "one client, which trains"
    )
    pools_data = True
