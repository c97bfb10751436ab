"""FPL: numbers by numpy, clusters of the clients' means, what travels."""

import numpy as np
import pytest
import torch
from by_bytes import CLASSES, Federation, few_of_a_class, make_client_data
from by_numpy import means_of_rounds, rows, train_all
from examples import examples
from federations import FEW_WORLDS, check, federate, refuse_upload
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from federatedscope_ggeur.methods import FPL
from federatedscope_ggeur.methods.fpl import cluster_means, finch

# FINCH, plainly, with means of the points themselves.


def parts(points):
    """Connected parts of "i and j are neighbours, or have the same"."""
    n = len(points)
    if n == 1:
        return [[0]]
    u = points / np.linalg.norm(points, axis=1, keepdims=True).clip(1e-12)
    near = (u @ u.T - 3 * np.eye(n)).argmax(axis=1)  # never oneself
    joined = (near[:, None] == np.arange(n)) | (near[:, None] == near)
    number, part = connected_components(joined, directed=False)
    return [np.flatnonzero(part == one).tolist() for one in range(number)]


def finch_oracle(points):
    """The last partition that is not one cluster, of means of the points themselves."""
    found = parts(points)
    while True:
        means = np.stack([points[list(own)].mean(axis=0) for own in found])
        coarser = [sorted(i for k in own for i in found[k]) for own in parts(means)]
        if len(coarser) == 1 or len(coarser) == len(found):
            return found
        found = coarser


TEMPERATURE, STRENGTH = 0.5, 0.7


def cosine(a, b):
    return a @ b / max(np.linalg.norm(a), 1e-12) / max(np.linalg.norm(b), 1e-12)


def contrast(z, y, clusters):
    """-log(sum over own clusters of e^{cos/t} / sum over all), of one row."""
    each = {
        c: [np.exp(cosine(z, p) / TEMPERATURE) for p in own]
        for c, own in clusters.items()
    }
    return -np.log(sum(each[y]) / sum(e for own in each.values() for e in own))


def oracle(world):
    clusters = {}

    def train(w, clients, number):
        def loss(v, x, y):
            z, total = world.represent(v, x), 0.0
            for row, c in zip(z, y):
                if c in clusters:
                    unbiased = np.mean(clusters[c], axis=0)
                    total += contrast(row, c, clusters)
                    total += ((row - unbiased) ** 2).mean()
            return world.cross_entropy(v, x, y) + STRENGTH * total / len(y)

        trained = train_all(world, w, clients, loss)
        sent = {}
        for k in clients:
            x, y = rows(k)
            z = world.represent(trained[k], x)
            for c in set(y):
                sent.setdefault(c, []).append(z[y == c].mean(axis=0))
        for c, means in sent.items():
            points = np.stack(means)
            clusters[c] = [points[own].mean(axis=0) for own in finch_oracle(points)]
        return trained

    return means_of_rounds(world, train)


@pytest.mark.parametrize("world", FEW_WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(FPL(TEMPERATURE, STRENGTH), oracle, world)


def step_with(means, known):
    """The state after a round in which clients sent `means` [K, C, D'] of `known`."""
    clients = len(means)
    federation = federate(FPL(), rounds=0, sizes=(20,) * clients)
    updates = federation.train(1)
    for update, own, which in zip(updates, means, known):
        update.upload.update(means=own * which[:, None], known=which)
    federation.step(1, updates)
    return federation


def test_a_cluster_of_many_clients_weighs_no_more_than_one_of_two():
    near, far = torch.eye(CLASSES)[0], torch.eye(CLASSES)[1]
    tilt = 0.01 * torch.eye(CLASSES)[2]
    points = torch.stack([near, near + tilt, near - tilt, near, far, far + tilt])
    means = torch.zeros(6, CLASSES, CLASSES)
    means[:, 2] = points
    known = torch.zeros(6, CLASSES, dtype=torch.int64)
    known[:, 2] = 1
    state = step_with(means, known).server.method_state
    assert state["labels"].tolist() == [2, 2]
    wanted = (points[:4].mean(dim=0) + points[4:].mean(dim=0)) / 2
    torch.testing.assert_close(state["unbiased"][2], wanted)
    assert state["known"].tolist() == [0, 0, 1, 0]


def test_a_class_that_nobody_sent_keeps_its_clusters():
    means = torch.randn(2, CLASSES, CLASSES, generator=torch.Generator().manual_seed(1))
    federation = step_with(means, torch.ones(2, CLASSES, dtype=torch.int64))
    before = federation.server.method_state
    updates = federation.train(2)
    for update in updates:
        update.upload["known"][1] = 0
        update.upload["means"][1] = 0
    federation.step(2, updates)
    after = federation.server.method_state
    assert after["known"].all()
    for name in ("clusters", "unbiased"):
        of = {"clusters": "labels"}.get(name)
        rows_of = [s[of] == 1 if of else torch.tensor([1]) for s in (before, after)]
        assert torch.equal(after[name][rows_of[1]], before[name][rows_of[0]])
    assert not torch.equal(after["unbiased"][0], before["unbiased"][0])


def test_a_class_below_the_threshold_sends_nothing():
    data = make_client_data((40, 40))
    few_of_a_class(data[1])
    federation = Federation(data, FPL(), min_samples=5).round0()
    first, second = (update.upload for update in federation.train(1))
    assert first["known"].tolist() == [1, 1, 0, 1]
    assert not first["means"][2].any()
    assert second["known"].all()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"known": 2}, "'known' must be 0 or 1"),
        ({"known": -1}, "'known' must be 0 or 1"),
        ({"known": 0}, "'means' must be 0 for classes that are not 'known'"),
        ({"means": 2e15}, r"'means' must lie within \+-1e\+15"),
    ],
)
def test_an_upload_that_cannot_be_is_refused(change, problem):
    refuse_upload(Federation(make_client_data(), FPL()).round0(), change, problem)


# FINCH against a plain oracle, and on point sets whose clusters are seen.


def as_sets(clusters):
    return {frozenset(np.flatnonzero(clusters == c)) for c in np.unique(clusters)}


def test_of_no_points_there_are_no_clusters():
    assert finch(torch.zeros(0, 4)).tolist() == []


def test_clusters_of_clusters():
    # Four pairs: two of them near one axis, two near the other.
    angles = torch.tensor([0.0, 0.01, 0.1, 0.11, 1.4, 1.41, 1.5, 1.51])
    points = torch.stack([angles.cos(), angles.sin()], dim=1)
    assert finch(points).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@given(st.integers(1, 14), st.integers(1, 5), st.integers(0, 10**6))
@examples(80)
def test_clusters_are_those_of_the_oracle(n, dim, seed):
    points = np.random.default_rng(seed).normal(size=(n, dim + 1))
    found = finch(torch.tensor(points)).numpy()
    assert as_sets(found) == {frozenset(own) for own in finch_oracle(points)}
    # Numbered by their first point.
    firsts = [np.flatnonzero(found == c)[0] for c in range(found.max() + 1)]
    assert firsts == sorted(firsts)


def test_means_are_of_the_points():
    points = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]])
    means = cluster_means(points, torch.tensor([0, 1, 0]))
    assert means.tolist() == [[3.0, 1.0], [3.0, 4.0]]
