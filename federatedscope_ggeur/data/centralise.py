"""All clients' training rows in one place."""

from __future__ import annotations

from dataclasses import replace

from federatedscope_ggeur.data.embeddings import Embeddings
from federatedscope_ggeur.data.partition import ClientData, FederatedData

ALL_DOMAINS = "all domains"


def centralise(data: FederatedData) -> FederatedData:
    """Give the training rows of all clients to one, number 1; the test sets stay apart.

    Parameters
    ----------
    data : FederatedData
        If its training rows are in one place already, it comes back as it is.

    Returns
    -------
    FederatedData
        Its client holds the rows in order of the clients they come from, and no test
        rows; `test_sets` gives what it gave before.
    """
    if data.is_centralised:
        return data
    parts = [client.train for client in data.clients]
    train = Embeddings.concatenate(parts, ALL_DOMAINS)
    pooled = ClientData(1, ALL_DOMAINS, train, train.select([]))
    tests = data.test_sets()
    seen = {name: tests[name] for name in data.domains}
    return replace(data, clients=(pooled,), seen_tests=seen)
