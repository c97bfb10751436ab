"""Splitter ``subset``: one main class a client, a little of the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from splitter_data import balanced, check_partition, counts, divided, rows_of

from federatedscope_ggeur.errors import ConfigError


def test_95_of_100_rows():
    train = rows_of(balanced(10, 100))
    clients = divided("subset", [], 10, train)
    check_partition(clients, train)
    held = counts(clients, 10)
    assert (np.diag(held) == 95).all()
    others = held[~np.eye(10, dtype=bool)]
    assert set(others) == {0, 1}
    assert np.abs(held.sum(axis=1) - 100).max() <= 1


@pytest.mark.slow
@given(
    st.integers(2, 8),
    st.integers(1, 3),
    st.integers(0, 60),
    st.sampled_from([0.5, 0.9, 0.95, 1.0]),
    st.integers(0, 99),
)
def test_sizes(classes, times, more, share, seed):
    per_class = 20 + more
    train = rows_of(balanced(classes, per_class))
    clients = divided("subset", [{"share": share}], classes * times, train, seed=seed)
    check_partition(clients, train)
    held = counts(clients, classes)
    main = np.arange(len(clients)) % classes
    mine = held[np.arange(len(clients)), main]
    assert np.abs(mine - share * per_class / times).max() <= 1
    foreign = held.sum(axis=1) - mine
    assert foreign.max() - foreign.min() <= 1
    # Of the others' class each client has as many as any other, but for one.
    for c in range(classes):
        given_away = held[main != c, c]
        assert given_away.max() - given_away.min() <= 1


@pytest.mark.slow
@given(st.lists(st.integers(1, 50), min_size=2, max_size=6), st.integers(0, 9))
def test_nothing_is_lost_of_classes_of_any_size(sizes, seed):
    train = rows_of(np.repeat(np.arange(len(sizes)), sizes))
    clients = divided("subset", [], len(sizes), train, seed=seed)
    check_partition(clients, train)


def test_clients_that_are_no_multiple_of_the_classes_are_refused():
    train = rows_of(balanced(10, 5))
    message = r"domain 'd' must be a multiple of its 10 classes, but is 12"
    with pytest.raises(ConfigError, match=message):
        divided("subset", [], 12, train)


def test_a_share_above_one_is_refused():
    with pytest.raises(ConfigError, match="share must be above 0 and at most"):
        divided("subset", [{"share": 95}], 2, rows_of([0, 1]))
