"""Data of one domain for tests of splitters, and what each client gets of it."""

from __future__ import annotations

import numpy as np
import torch

from federatedscope_ggeur.data import DataSet, Domain, Embeddings, partition


def rows_of(labels, users=None, name="d"):
    """Rows that can be told apart: the feature is the row's number."""
    labels = torch.as_tensor(np.asarray(labels, dtype=np.int64))
    numbers = torch.arange(len(labels), dtype=torch.float32)[:, None]
    users = None if users is None else torch.as_tensor(np.asarray(users, np.int64))
    return Embeddings(numbers, labels, name, users=users)


def balanced(classes, per_class):
    """Labels [classes x per_class], every class equally often, in no order."""
    labels = np.repeat(np.arange(classes), per_class)
    return np.random.default_rng(classes * per_class).permutation(labels)


def divided(splitter, args, clients, train, test=None, seed=0, classes=None):
    """The clients of one domain with the rows `train`, and `test` to test on."""
    test = train if test is None else test
    classes = int(train.labels.max()) + 1 if classes is None else classes
    data = DataSet((Domain("d", train, test),), tuple(map(str, range(classes))), "none")
    found = partition(
        data,
        client_num=clients,
        splitter=splitter,
        splitter_args=args,
        seed=seed,
    )
    return found.clients


def numbers(rows):
    """The numbers of rows, in order."""
    return rows.features[:, 0].long().tolist()


def check_partition(clients, train):
    """No row twice, none lost."""
    held = [number for client in clients for number in numbers(client.train)]
    assert sorted(held) == numbers(train)


def counts(clients, classes):
    """Rows [K, C] of each client and class."""
    return np.stack([c.train.labels.bincount(minlength=classes) for c in clients])
