"""All data in one place: the upper bound of what a federation can reach."""

from __future__ import annotations

from federatedscope_ggeur.methods.fedavg import FedAvg


class Centralised(FedAvg):
    """FedAvg over one client, to whom an engine gives all clients' training rows.

    See `federatedscope_ggeur.data.centralise`.
    """

    name = "centralised"
