"""Small federations: rows on clients of domains, and their components."""

import closed_form_oracle as oracle
import numpy as np
from solving import stats

from federatedscope_ggeur.models.closed_forms.components import Components


def make_federation(shape, num_classes=4, num_clients=3, seed=0):
    """Rows, labels and each row's client: every client's rows lie a little apart."""
    rng = np.random.default_rng(seed)
    rows, labels = oracle.make_data(rng, num_classes=num_classes, **shape)
    clients = rng.integers(1, num_clients + 1, size=len(rows))
    return rows + 0.5 * rng.normal(size=(num_clients + 1, 1))[clients], labels, clients


def components_of(rows, labels, clients, num_classes):
    """Clients of odd numbers are in one domain, those of even ones in another."""
    return Components.joined(
        Components.of_client(
            stats(rows[clients == k], labels[clients == k], num_classes),
            k,
            str(k % 2),
            ("0", "1"),
        )
        for k in sorted(set(clients.tolist()))
    )
