"""Partitioners: nothing twice, nothing lost, keyed by the seed, refusals by key."""

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.data import DataSet, Domain, Embeddings, lds_matrix, partition
from federatedscope_ggeur.errors import ConfigError

SPLITTERS = {
    "iid": [],
    "lda": [{"alpha": 0.3}],
    "domain": [{"fraction": 0.02}],
    "lds": [{"alpha": 0.3}],
}
SKEWED = ("lda", "lds")


def numbered(n, domain, classes, start=0.0):
    """Rows that can be told apart: the feature is the row's number."""
    features = torch.arange(n, dtype=torch.float32)[:, None] + start
    labels = torch.from_numpy(np.random.default_rng(n).integers(0, classes, n))
    return Embeddings(features, labels, domain)


def make_dataset(train_sizes=(60, 90), test_sizes=(30, 45)):
    names = ["art", "photo", "sketch", "cartoon"]
    domains = tuple(
        Domain(name, numbered(a, name, 4), numbered(b, name, 4, 1000.0))
        for name, a, b in zip(names, train_sizes, test_sizes)
    )
    return DataSet(domains, ("0", "1", "2", "3"), "numbers")


def divide(dataset, splitter="iid", args=None, clients=2, seed=0, **more):
    args = SPLITTERS.get(splitter, []) if args is None else args
    return partition(
        dataset,
        client_num=clients,
        splitter=splitter,
        splitter_args=args,
        seed=seed,
        **more,
    )


def numbers(rows):
    return rows.features[:, 0].tolist()


def train_numbers(data):
    return [numbers(client.train) for client in data.clients]


def held(client, split="train"):
    """Rows of each class."""
    return getattr(client, split).labels.bincount(minlength=4).tolist()


def sharing(domain, data, splitter):
    """The clients of a domain; none of them has a row of another."""
    mine = [c for c in data.clients if c.domain == domain.name]
    rows = [row for c in mine for row in numbers(c.train)]
    assert len(rows) == len(set(rows))
    assert set(rows) <= set(numbers(domain.train))
    if splitter in ("iid", "lda"):
        assert len(rows) == len(domain.train)
    return mine


sizes = st.lists(st.integers(1, 80), min_size=2, max_size=4)


@examples(25)
@given(
    sizes,
    sizes,
    st.integers(0, 12),
    st.sampled_from(sorted(SPLITTERS)),
    st.integers(0, 99),
)
def test_no_row_twice_and_the_test_sets_complete(train, test, more, splitter, seed):
    dataset = make_dataset(train, test)
    count = len(dataset.domains)
    data = divide(dataset, splitter, clients=count + more, seed=seed)
    assert [c.number for c in data.clients] == list(range(1, count + more + 1))
    assert [c.domain for c in data.clients] == [
        dataset.domains[k % count].name for k in range(count + more)
    ]
    for domain in dataset.domains:
        mine = sharing(domain, data, splitter)
        rows = [row for c in mine for row in numbers(c.test)]
        assert sorted(rows) == numbers(domain.test)
        assert sorted(numbers(data.test_sets()[domain.name])) == numbers(domain.test)
        tests = np.array([held(client, "test") for client in mine])
        assert np.ptp(tests, axis=0).max() <= 1
        assert np.ptp(tests.sum(axis=1)) <= 1


@examples(20)
@given(st.sampled_from(sorted(SPLITTERS)), st.integers(0, 10**9))
def test_same_seed_same_rows_other_seed_other_rows(splitter, seed):
    dataset = make_dataset()
    args = [{"fraction": 0.2}] if splitter == "domain" else None
    first, again, other = (
        train_numbers(divide(dataset, splitter, args, clients=4, seed=s))
        for s in (seed, seed, seed + 1)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("splitter", ["iid", "lda"])
def test_domains_are_drawn_independently(splitter):
    rows = numbered(60, "any", 4)
    twins = tuple(
        Domain(name, *(Embeddings(rows.features, rows.labels, name),) * 2)
        for name in ("art", "photo")
    )
    data = divide(DataSet(twins, tuple("0123"), "numbers"), splitter, clients=4)
    first, second, third, fourth = train_numbers(data)
    assert first != second
    assert third != fourth


def test_domain_fraction_and_its_default():
    dataset = make_dataset((100, 50), (10, 10))
    data = divide(dataset, "domain", [{"fraction": 0.3}], clients=4)
    assert [len(c.train) for c in data.clients] == [30, 15, 30, 15]
    data = divide(dataset, "domain", [], clients=3)
    assert [len(c.train) for c in data.clients] == [50, 50, 50]
    data = divide(dataset, "domain", [{"fraction": 1}], clients=2)
    assert [len(c.train) for c in data.clients] == [100, 50]


@examples(25)
@given(
    sizes,
    st.integers(0, 12),
    st.sampled_from(SKEWED),
    st.sampled_from([1e-6, 0.1, 5.0]),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_min_per_class_deals_to_every_client(
    train, more, splitter, alpha, minimum, seed
):
    """All of a class that has enough; of one that has not, to the first clients."""
    dataset = make_dataset(train, train)
    args = [{"alpha": alpha, "min_per_class": minimum}]
    clients = len(dataset.domains) + more
    data = divide(dataset, splitter, args, clients=clients, seed=seed)
    for domain in dataset.domains:
        mine = sharing(domain, data, splitter)
        for c, n in enumerate(domain.train.labels.bincount(minlength=4).tolist()):
            dealt = [held(client)[c] for client in mine]
            assert min(dealt) >= min(minimum, n // len(mine))
            if n < len(mine) * minimum:
                each, first = divmod(n, len(mine))
                assert dealt == [each + (k < first) for k in range(len(mine))]


@pytest.mark.parametrize("splitter", SKEWED)
def test_min_per_class_leaves_the_proportions_of_the_rest(splitter):
    """With and without it, the same Dirichlet matrix."""
    dataset = make_dataset((4000, 3000), (10, 10))
    without, given = (
        divide(dataset, splitter, [{"alpha": 0.5, **more}], clients=6, seed=3)
        for more in ({}, {"min_per_class": 20})
    )
    for before, after in zip(without.clients, given.clients):
        domain = next(d for d in dataset.domains if d.name == before.domain)
        for c, n in enumerate(domain.train.labels.bincount().tolist()):
            share = held(before)[c] / n
            assert abs(held(after)[c] - 20 - share * (n - 60)) <= 2


def test_partitions_stay_as_they_were():
    """Rows of client 1 that this very call gave before there was `min_per_class`."""
    dataset = make_dataset((20,), (3,))
    args = [{"alpha": 0.5}]
    found = {name: divide(dataset, name, args, clients=3) for name in SKEWED}
    rows = {name: train_numbers(data)[0] for name, data in found.items()}
    assert rows == {"lda": [3, 9, 10, 12], "lds": [0, 4, 7, 15, 16, 17]}


def test_lds_follows_the_matrix_within_each_domain():
    dataset = make_dataset((400, 300), (10, 10))
    data = divide(dataset, "lds", [{"alpha": 0.5}], clients=6, seed=3)
    matrix = lds_matrix(6, 4, 0.5, 3)
    for client in data.clients:
        domain = next(d for d in dataset.domains if d.name == client.domain)
        has = domain.train.labels.bincount(minlength=4).numpy()
        wanted = matrix[client.number - 1] * has
        np.testing.assert_allclose(held(client), wanted, rtol=0, atol=1)


@given(
    st.integers(1, 40),
    st.integers(1, 30),
    st.sampled_from([1e-310, 1e-5, 0.01, 0.1, 1, 50, 1e308]),
    st.integers(0, 99),
)
def test_lds_columns_sum_to_one_for_any_alpha(client_num, classes, alpha, seed):
    matrix = lds_matrix(client_num, classes, alpha, seed)
    assert matrix.shape == (client_num, classes)
    assert (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=1e-12)


@pytest.mark.slow
def test_lds_is_a_dirichlet_distribution():
    """First two moments: mean 1/K, variance (1/K)(1 - 1/K) / (K alpha + 1)."""
    for alpha in (0.05, 0.5, 5.0):
        matrix = lds_matrix(5, 20_000, alpha, 0)
        np.testing.assert_allclose(matrix.mean(axis=1), 0.2, atol=0.015)
        expected = 0.2 * 0.8 / (5 * alpha + 1)
        np.testing.assert_allclose(matrix.var(axis=1), expected, rtol=0.06)


def test_smallest_alpha_gives_a_class_to_one_client():
    matrix = lds_matrix(10, 50, 1e-6, 0)
    np.testing.assert_allclose(matrix.max(axis=0), 1)
    assert len(set(matrix.argmax(axis=0))) > 3


def test_unseen_domains_are_held_by_no_client_and_scored():
    dataset = make_dataset((20, 30, 40), (10, 12, 14))
    data = divide(dataset, clients=2, unseen_domains=["photo"])
    assert data.domains == ("art", "sketch")
    assert [c.domain for c in data.clients] == ["art", "sketch"]
    assert [d.name for d in data.unseen] == ["photo"]
    tests = data.test_sets()
    assert list(tests) == ["art", "sketch", "photo"]
    assert [len(rows) for rows in tests.values()] == [10, 14, 12]
    assert (data.dim, data.num_classes, data.encoder) == (1, 4, "numbers")


def test_domains_of_clients_can_be_left_for_the_test():
    dataset = make_dataset((20, 30, 40), (10, 12, 14))
    whole, divided = (
        divide(dataset, clients=clients, unseen_domains=names)
        for clients, names in ((3, []), (2, ["photo"]))
    )
    data = whole.without(["photo"])
    assert [client.number for client in data.clients] == [1, 3]
    assert (data.domains, data.unseen) == (divided.domains, divided.unseen)
    assert list(data.test_sets()) == ["art", "sketch", "photo"]
    assert data.without(["photo"]) is data
    for names, problem in ((["moon"], "moon"), (list(whole.domains), "no domain")):
        with pytest.raises(ConfigError, match=rf"ggeur\.unseen_domains.*{problem}"):
            whole.without(names)


def test_another_domain_changes_nothing_for_the_first():
    two = make_dataset((60, 90), (30, 45))
    three = make_dataset((60, 90, 50), (30, 45, 20))
    for splitter in ("iid", "lda", "domain"):
        small = divide(two, splitter, clients=4).clients
        large = divide(three, splitter, clients=6).clients
        for name in ("art", "photo"):
            a, b = (
                [numbers(c.train) for c in clients if c.domain == name]
                for clients in (small, large)
            )
            assert a == b


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"splitter": "dirichlet"}, r"data\.splitter: .*'dirichlet'.*iid, lda, domain"),
        ({"splitter": "lda", "args": []}, r"data\.splitter_args: \[\].*alpha"),
        ({"splitter": "lds", "args": [{"alpha": 0}]}, r"splitter_args.*above 0"),
        ({"splitter": "lda", "args": [{"alpha": "0.1"}]}, r"args.*above 0.*'0\.1'"),
        (
            {"splitter": "lda", "args": [{"beta": 0.1}]},
            r"args.*no argument beta.*alpha",
        ),
        ({"splitter": "lda", "args": {"alpha": 0.1}}, r"splitter_args.*\[\{'alpha'"),
        ({"splitter": "lda", "args": [{"alpha": 1}, {}]}, r"splitter_args"),
        ({"splitter": "lda", "args": [{"min_per_class": -1}]}, "class must be a whole"),
        ({"splitter": "lda", "args": [{"min_per_class": 1}]}, r"alpha must be given"),
        ({"splitter": "iid", "args": [{"alpha": 1}]}, r"splitter_args.*no arguments"),
        ({"splitter": "domain", "args": [{"fraction": 1.1}]}, r"args.*at most 1"),
        ({"splitter": "domain", "args": [{"fraction": None}]}, r"args.*above 0.*None"),
        (
            {"splitter": "domain", "args": [{"fraction": 0.6}], "clients": 4},
            r"data\.splitter_args: fraction 0\.6.*'art'.*2 clients.*1/2",
        ),
        ({"splitter": ""}, r"data\.splitter is not set; .*lds.*federate\.client_num"),
        ({"clients": 1}, r"federate\.client_num is 1.*2 seen domains \(art, photo\)"),
        ({"unseen_domains": ["moon"]}, r"ggeur\.unseen_domains.*'art', 'photo'.*moon"),
        ({"unseen_domains": "art"}, r"ggeur\.unseen_domains must be a list"),
        ({"unseen_domains": ["art", "photo"]}, r"ggeur\.unseen_domains.*no domain"),
    ],
)
def test_impossible_settings_are_refused_by_key(change, message):
    with pytest.raises(ConfigError, match=message):
        divide(make_dataset(), **change)


@examples(20)
@given(st.sampled_from(sorted(SPLITTERS)), st.floats(0.05, 0.9), st.integers(0, 99))
def test_each_client_sets_rows_of_its_own_aside(splitter, share, seed):
    dataset = make_dataset((60, 45), (20, 30))
    whole = divide(dataset, splitter, clients=5, seed=seed)
    data = divide(dataset, splitter, clients=5, seed=seed, validation=share)
    for before, after in zip(whole.clients, data.clients):
        assert numbers(after.test) == numbers(before.test)
        both = [*numbers(after.train), *numbers(after.val)]
        assert sorted(both) == sorted(numbers(before.train))
        spare = np.maximum(np.array(held(before)) - 1, 0)  # no class loses its last row
        total = len(after.val)
        assert total == min(round(share * len(before.train)), spare.sum())
        aside = np.array(held(after, "val"))
        assert (aside <= spare).all()
        assert (abs(aside - total * spare / max(1, spare.sum())) <= 1).all()
    again = divide(dataset, splitter, clients=5, seed=seed, validation=share)
    assert [numbers(c.val) for c in again.clients] == [
        numbers(c.val) for c in data.clients
    ]
    assert all(len(client.val) == 0 for client in whole.clients)


def test_what_a_server_scores_is_by_split_and_domain():
    dataset = make_dataset((60, 45, 30), (20, 30, 10))
    names = [domain.name for domain in dataset.domains]
    data = divide(dataset, clients=4, validation=0.25, unseen_domains=names[2:])
    rows = data.server_rows(["test", "val"], seen=True)
    assert list(rows["test"]) == names
    assert list(rows["val"]) == names[:2]
    assert {k: len(v) for k, v in rows["val"].items()} == {
        name: sum(len(c.val) for c in data.clients if c.domain == name)
        for name in names[:2]
    }
    assert data.server_rows(["val"], seen=False) == {"val": {}}
    assert list(data.server_rows(["test"], seen=False)["test"]) == names[2:]
