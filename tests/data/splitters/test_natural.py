"""Splitter ``natural``: by who made the rows."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from splitter_data import check_partition, divided, numbers, rows_of

from federatedscope_ggeur.errors import ConfigError


def users_of(clients, split="train"):
    return [sorted(set(getattr(c, split).users.tolist())) for c in clients]


def test_one_user_a_client():
    train = rows_of([0, 1, 0, 1, 0, 1], users=[7, 7, 2, 9, 2, 9])
    clients = divided("natural", [], 3, train)
    check_partition(clients, train)
    assert users_of(clients) == [[2], [7], [9]]
    assert [numbers(c.train) for c in clients] == [[2, 4], [0, 1], [3, 5]]


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 15), min_size=1, max_size=80),
    st.integers(1, 5),
    st.sampled_from([-1, 1, 2]),
    st.integers(0, 99),
)
def test_users_are_whole_and_apart(users, clients, each, seed):
    there = len(set(users))
    train = rows_of(np.zeros(len(users)), users)
    args = [{"users_per_client": each}]
    if max(clients, clients * each) > there:
        with pytest.raises(ConfigError, match=f"natural finds {there} users"):
            divided("natural", args, clients, train)
        return
    found = divided("natural", args, clients, train, seed=seed)
    held = users_of(found)
    together = [user for some in held for user in some]
    assert len(together) == len(set(together))
    if each == -1:
        check_partition(found, train)
        assert max(map(len, held)) - min(map(len, held)) <= 1
    else:
        assert {len(some) for some in held} == {each}
    for client, some in zip(found, held):
        assert numbers(client.train) == [r for r, u in enumerate(users) if u in some]


def test_users_are_drawn_and_the_others_left_out(caplog):
    train = rows_of(np.zeros(40), users=np.arange(40) % 20)
    with caplog.at_level(logging.INFO):
        draws = [users_of(divided("natural", [], 5, train, seed=s)) for s in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert "5 of the 20 users" in caplog.text


def test_a_client_tests_on_its_own_users_and_the_test_set_stays_whole():
    train = rows_of(np.zeros(6), users=[0, 1, 2, 0, 1, 2])
    test = rows_of(np.zeros(10), users=[2, 1, 0, 0, 5, 5, 5, 5, 1, 2])
    clients = divided("natural", [], 3, train, test)
    held = [numbers(c.test) for c in clients]
    assert sorted(row for rows in held for row in rows) == [*range(10)]
    for user, client in enumerate(clients):
        assert set(client.test.users.tolist()) - {5} == {user}
    # Rows of a user whom no client has are dealt evenly.
    strangers = [(c.test.users == 5).sum().item() for c in clients]
    assert sorted(strangers) == [1, 1, 2]


def test_data_without_users_are_refused():
    with pytest.raises(ConfigError, match=r"'d' has no user for each row.*'users'"):
        divided("natural", [], 1, rows_of([0, 1]))
