"""Splitter ``classes``: so many classes a client, in equal parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from splitter_data import balanced, check_partition, counts, divided, numbers, rows_of

from federatedscope_ggeur.errors import ConfigError


def test_two_of_ten_classes_for_ten_clients():
    train = rows_of(balanced(10, 100))
    clients = divided("classes", [], 10, train)
    check_partition(clients, train)
    held = counts(clients, 10)
    assert ((held > 0).sum(axis=1) == 2).all()
    assert set(held[held > 0]) == {50}


@st.composite
def fitting(draw):
    """(clients, classes, classes a client, rows a class) that fit."""
    classes = draw(st.integers(1, 12))
    size = draw(st.integers(1, classes))
    step = classes // np.gcd(classes, size)
    clients = step * draw(st.integers(1, 6))
    parts = clients * size // classes
    return clients, classes, size, parts + draw(st.integers(0, 9))


@pytest.mark.slow
@given(fitting(), st.integers(0, 99))
def test_what_fits_is_divided_without_rest(case, seed):
    clients, classes, size, per_class = case
    train = rows_of(balanced(classes, per_class))
    found = divided("classes", [{"per_client": size}], clients, train, seed=seed)
    check_partition(found, train)
    held = counts(found, classes)
    assert ((held > 0).sum(axis=1) == size).all()
    parts = clients * size // classes
    assert ((held > 0).sum(axis=0) == parts).all()
    assert set(held[held > 0]) <= {per_class // parts, -(-per_class // parts)}


def test_many_clients_need_no_luck():
    """A draw that starts anew at each clash would not end: the chance is 3e-49."""
    train = rows_of(balanced(10, 500))
    held = counts(divided("classes", [{"per_client": 5}], 100, train), 10)
    assert ((held > 0).sum(axis=1) == 5).all()


@pytest.mark.slow
def test_clients_are_alike():
    """Over many seeds each client has each class, and each pair, about as often."""
    train, seeds = rows_of(balanced(5, 4)), 600
    pairs = np.zeros((5, 5, 5))
    for seed in range(seeds):
        held = counts(divided("classes", [], 5, train, seed=seed), 5) > 0
        pairs += held[:, :, None] & held[:, None, :]
    share = pairs / seeds
    for client in share:
        assert np.abs(np.diag(client) - 2 / 5).max() < 0.1
        assert np.abs(client[~np.eye(5, dtype=bool)] - 1 / 10).max() < 0.07


def test_the_seed_decides():
    train = rows_of(balanced(10, 20))
    first, again, other = (
        [numbers(c.train) for c in divided("classes", [], 10, train, seed=seed)]
        for seed in (3, 3, 4)
    )
    assert first == again != other


def test_classes_that_the_domain_lacks_do_not_count():
    train = rows_of(balanced(4, 10) + 3)
    clients = divided("classes", [], 4, train, classes=9)
    check_partition(clients, train)
    assert ((counts(clients, 9) > 0).sum(axis=1) == 2).all()


@pytest.mark.parametrize(
    ("clients", "size", "message"),
    [
        (7, 2, r"7 client\(s\) and 10 classes: .* 7 x 2 = 14, .* multiple of 10"),
        (4, 11, r"per_client 11 is more than the number of classes"),
        (30, 2, r"cuts every class into 6 parts .* class 0 has only 5 row"),
    ],
)
def test_what_does_not_fit_is_refused(clients, size, message):
    train = rows_of(balanced(10, 5))
    with pytest.raises(ConfigError, match=message):
        divided("classes", [{"per_client": size}], clients, train)
