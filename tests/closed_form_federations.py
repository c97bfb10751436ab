"""Small federations: rows on clients of domains, and their components."""

import closed_form_oracle as oracle
import numpy as np
import torch
from solving import stats

from federatedscope_ggeur.models.closed_forms.components import Components, ScoredRows


def make_federation(shape, num_classes=4, num_clients=3, seed=0):
    """Rows, labels and each row's client: every client's rows lie a little apart."""
    rng = np.random.default_rng(seed)
    rows, labels = oracle.make_data(rng, num_classes=num_classes, **shape)
    clients = rng.integers(1, num_clients + 1, size=len(rows))
    return rows + 0.5 * rng.normal(size=(num_clients + 1, 1))[clients], labels, clients


def components_of(
    rows, labels, clients, num_classes, domains=None, held=None, weights=None
):
    """Of the rows that are `held`, by default all. By default clients of odd numbers
    are in one domain, those of even ones in another."""
    domains = clients % 2 if domains is None else domains
    names = tuple(map(str, range(domains.max() + 1)))
    parts = []
    for k in sorted(set(clients.tolist())):
        here = (clients == k) & (True if held is None else held)
        own = None if weights is None else weights[here]
        statistics = stats(rows[here], labels[here], num_classes, own)
        domain = names[domains[clients == k][0]]
        parts.append(Components.of_client(statistics, k, domain, names))
    every = slice(None) if held is None else held
    own = None if weights is None else weights[every]
    whole = stats(rows[every], labels[every], num_classes, own)
    return Components.joined(parts).with_scatters_of(whole)


def scored(rows, labels, client=1, domain=0, inside=None, weights=None):
    """Rows of a client, all of them in the statistics unless `inside` says so."""
    inside = np.ones(len(rows), bool) if inside is None else inside
    weights = None if weights is None else torch.from_numpy(weights).double()
    held = (torch.from_numpy(part) for part in (rows, labels))
    return ScoredRows(*held, client, domain, torch.from_numpy(inside), weights)
