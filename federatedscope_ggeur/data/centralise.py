"""Move the training rows of all clients to one client."""

from __future__ import annotations

from dataclasses import replace

from .clients import ClientData
from .embeddings import Embeddings
from .partition import FederatedData

ALL_DOMAINS = "all domains"


def centralise(data: FederatedData) -> FederatedData:
    """Give the training rows of all clients to one client, number 1.

    Validation and test rows stay with their clients.

    Parameters
    ----------
    data : FederatedData
        The data. If one client has all training rows already, they are returned
        unchanged.

    Returns
    -------
    FederatedData
        The data with one client, which holds the training rows in the order of the
        former clients. `test_sets` and `rows` of the other splits are as before.
    """
    if data.is_centralised:
        return data
    parts = [client.train for client in data.clients]
    train = Embeddings.concatenate(parts, ALL_DOMAINS)
    pooled = ClientData(1, ALL_DOMAINS, train, train.select([]))
    apart = {split: data.rows(split) for split in ("val", "test")}
    return replace(
        data, clients=(pooled,), pooled=apart, pooled_clients=len(data.clients)
    )
