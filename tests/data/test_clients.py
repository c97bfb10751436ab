"""Clients whose rows are ranges of shared rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.data import (
    ClientData,
    FederatedData,
    class_counts,
    fingerprint,
    held_lazily,
    sizes_of,
)

CLASSES = 3
SPLITS = ("train", "test", "val")


@st.composite
def arrays(draw):
    """Rows of up to six clients in two domains, in any order and any split."""
    n = draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    clients = rng.integers(0, 6, n)
    return {
        "features": rng.normal(size=(n, 2)).astype("float32"),
        "labels": rng.integers(0, CLASSES, n),
        "clients": clients,
        "domains": np.array(["a", "b"])[clients % 2],
        "split": rng.integers(0, 3, n),
    }


def divided(rows, **options) -> FederatedData:
    split = rows["split"]
    given = {name: rows[name] for name in ("features", "labels", "clients", "domains")}
    given.update(test=split == 1, validation=split == 2)
    names = [str(c) for c in range(CLASSES)]
    return FederatedData.from_arrays(**given, class_names=names, **options)


@pytest.mark.slow
@given(arrays())
def test_each_client_has_its_rows_in_their_order(rows):
    data = divided(rows)
    labels = np.unique(rows["clients"])
    assert len(data.clients) == len(labels)
    for client, who in zip(data.clients, labels):
        assert client.domain == ("a", "b")[who % 2]
        for place, split in enumerate(SPLITS):
            mine = (rows["clients"] == who) & (rows["split"] == place)
            part = getattr(client, split)
            np.testing.assert_array_equal(part.features, rows["features"][mine])
            np.testing.assert_array_equal(part.labels, rows["labels"][mine])
            assert part.domain == client.domain


@pytest.mark.slow
@given(arrays())
def test_what_is_said_of_all_is_that_of_each(rows):
    ranges = divided(rows)
    each = tuple(ranges.clients)
    apart = FederatedData(each, ranges.domains, (), ranges.class_names, "arrays")
    counts = [torch.bincount(c.train.labels, minlength=CLASSES).tolist() for c in each]
    for data in (ranges, apart):
        assert class_counts(data.clients, CLASSES).tolist() == counts
        for split in SPLITS:
            sizes = [len(getattr(client, split)) for client in each]
            assert sizes_of(data.clients, split).tolist() == sizes
        held = list(held_lazily(data.clients))
        assert [one.number for one in held] == [one.number for one in each]
    assert fingerprint(ranges) == fingerprint(apart)
    assert ranges.rows("val").keys() == apart.rows("val").keys()
    for domain, part in ranges.rows("train").items():
        assert part.features.equal(apart.rows("train")[domain].features)


def test_rows_in_order_are_not_copied_if_nobody_changes_them():
    features = np.zeros((6, 2), dtype="float32")
    labels, clients = np.arange(6) % 2, [1, 1, 2, 2, 1, 2]
    test = np.arange(6) > 3
    for copy in (True, False):
        data = FederatedData.from_arrays(
            features, labels, clients, test=test, copy=copy
        )
        train = data.clients[1].train.features.numpy()
        assert np.shares_memory(train, features) == (not copy)


def test_a_client_by_position():
    data = FederatedData.from_arrays(np.ones((4, 2)), [0, 1, 0, 1], [1, 2, 3, 4])
    assert isinstance(data.clients[-1], ClientData)
    assert [one.number for one in data.clients[1:3]] == [2, 3]
    with pytest.raises(IndexError):
        data.clients[4]
