"""All clients' training rows in one place."""

from __future__ import annotations

from dataclasses import replace

from federatedscope_ggeur.data.clients import ClientData
from federatedscope_ggeur.data.embeddings import Embeddings
from federatedscope_ggeur.data.partition import FederatedData

ALL_DOMAINS = "all domains"


def centralise(data: FederatedData) -> FederatedData:
    """Give the training rows of all clients to one, number 1; all others stay apart.

    Parameters
    ----------
    data : FederatedData
        If its training rows are in one place already, it comes back as it is.

    Returns
    -------
    FederatedData
        Its client holds the rows in order of the clients they come from, and no others;
        `test_sets` and `rows` of a split give what they gave before.
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
