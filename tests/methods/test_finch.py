"""FINCH against a plain oracle, and on point sets whose clusters are seen."""

import numpy as np
import torch
from finch_oracle import finch_oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.methods.fpl import cluster_means, finch


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
@settings(max_examples=80, deadline=None)
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
