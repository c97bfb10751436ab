"""Splitters: who gets which rows of a domain."""

import logging

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_partition import divide, numbers

from federatedscope_ggeur.data import DataSet, Domain, Embeddings
from federatedscope_ggeur.errors import ConfigError

# Data of one domain for tests of splitters, and what each client gets of it.


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
    return divide(data, splitter, args, clients, seed).clients


def check_partition(clients, train):
    """No row twice, none lost."""
    held = [number for client in clients for number in numbers(client.train)]
    assert sorted(held) == numbers(train)


def counts(clients, classes):
    """Rows [K, C] of each client and class."""
    return np.stack([c.train.labels.bincount(minlength=classes) for c in clients])


# Splitter ``classes``: so many classes a client, in equal parts.


@st.composite
def fitting(draw):
    """(clients, classes, classes a client, rows a class) that fit."""
    classes = draw(st.integers(1, 12))
    size = draw(st.integers(1, classes))
    step = classes // np.gcd(classes, size)
    clients = step * draw(st.integers(1, 6))
    parts = clients * size // classes
    return clients, classes, size, parts + draw(st.integers(0, 9))


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


def test_classes_that_the_domain_lacks_do_not_count():
    train = rows_of(balanced(4, 10) + 3)
    clients = divided("classes", [], 4, train, classes=9)
    check_partition(clients, train)
    assert ((counts(clients, 9) > 0).sum(axis=1) == 2).all()


@pytest.mark.parametrize(
    ("splitter", "args", "clients", "message"),
    [
        ("classes", {"per_client": 2}, 7, r"7 client\(s\) and 10 classes: .* 7 x 2 "),
        ("classes", {"per_client": 11}, 4, "11 is more than the number of classes"),
        ("classes", {"per_client": 2}, 30, "into 6 parts .* class 0 has only 5 row"),
        ("natural", {}, 1, r"'d' has no user for each row.*'users'"),
        ("subset", {}, 12, "'d' must be a multiple of its 10 classes, but is 12"),
        ("subset", {"share": 95}, 10, "share must be above 0 and at most"),
    ],
)
def test_what_does_not_fit_is_refused(splitter, args, clients, message):
    with pytest.raises(ConfigError, match=message):
        divided(splitter, [args], clients, rows_of(balanced(10, 5)))


# Splitter ``natural``: by who made the rows.


def users_of(clients):
    return [sorted(set(c.train.users.tolist())) for c in clients]


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


# Splitter ``subset``: one main class a client, a little of the others.


def test_95_of_100_rows():
    held = counts(divided("subset", [], 10, rows_of(balanced(10, 100))), 10)
    assert (np.diag(held) == 95).all()


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


@given(st.lists(st.integers(1, 50), min_size=2, max_size=6), st.integers(0, 9))
def test_nothing_is_lost_of_classes_of_any_size(sizes, seed):
    train = rows_of(np.repeat(np.arange(len(sizes)), sizes))
    clients = divided("subset", [], len(sizes), train, seed=seed)
    check_partition(clients, train)
