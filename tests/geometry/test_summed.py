"""Statistics with one scatter for all classes, or none: the algebra, the edges."""

import itertools
import operator
from functools import partial

import numpy as np
import pytest
import solving
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import Statistics

NUM_CLASSES = 4


stats = partial(solving.stats, num_classes=NUM_CLASSES)


def summed(rows, labels):
    return stats(rows, labels).to("pooled")


def random_data(rng, n, dim, offset=0.0):
    return offset + rng.normal(size=(n, dim)), rng.integers(NUM_CLASSES, size=n)


def assert_same(found, wanted, tolerance=1e-9):
    assert torch.equal(found.counts, wanted.counts)
    assert found.classes == wanted.classes
    reach = max(1.0, float(wanted.means.abs().max()))
    assert (found.means - wanted.means).abs().max() <= tolerance * reach
    error = (found.scatter() - wanted.scatter()).norm()
    assert error <= tolerance * max(1.0, float(wanted.scatter().norm()))


@pytest.mark.parametrize("dim", [1, 3, 12, 50])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_what_was_added_can_be_removed(dim, offset):
    rng = np.random.default_rng(dim)
    parts = [summed(*random_data(rng, n, dim, offset)) for n in (40, 3, 20, 0)]
    for part in parts:
        others = [other for other in parts if other is not part]
        assert_same(sum(parts) - part, sum(others))
    left = sum(parts) - parts[0] - parts[1] - parts[2]
    assert left.classes == []
    assert not left.means.any()
    assert not left.scatter().any()
    assert_same(left + parts[0], parts[0], tolerance=0)


class TestFactor:
    rng = np.random.default_rng(2)
    rows, labels = rng.normal(size=(12, 30)), np.arange(12) % 4
    held = summed(rows, labels)

    def test_has_the_rank_of_the_sum(self):
        assert self.held.factor().shape == (12 - 4, 30)
        assert self.held.factor_is_smaller()
        many = summed(*random_data(self.rng, 200, 30))
        assert many.factor().shape == (30, 30)
        assert not many.factor_is_smaller()

    def test_clients_without_a_common_class_add_no_rank(self):
        rows = self.rng.normal(size=(4, 9))
        merged = summed(rows[:2], [0, 0]) + summed(rows[2:], [1, 1])
        assert merged.factor_is_smaller()
        assert merged.factor().shape == (2, 9)

    def test_depends_on_the_sum_alone(self):
        wanted = self.held.factor()
        tolerance = 1e-9 * float(wanted.norm())
        dense = Statistics.of_pooled(
            self.held.counts, self.held.means, scatter=self.held.scatter()
        )
        # The rows of the classes turned into each other: other data, the same sum.
        turn = torch.linalg.qr(torch.from_numpy(self.rng.normal(size=(8, 8))))[0]
        turned = Statistics.of_pooled(
            self.held.counts, self.held.means, factor=turn @ wanted
        )
        backwards = summed(self.rows[::-1].copy(), self.labels[::-1].copy())
        for same in (dense, turned, backwards, sum([self.held])):
            assert (same.factor() - wanted).norm() <= tolerance


def test_nothing_taken_away_leaves_a_small_factor():
    few = summed(*random_data(np.random.default_rng(3), 4, 40))
    assert (few - Statistics.empty(NUM_CLASSES, 40, "pooled")).factor_is_smaller()
    assert "4 samples, dim 40" in repr(few)


def test_what_a_message_calls_the_mean_of_an_empty_class_is_zero():
    held = Statistics.of_pooled(
        torch.tensor([2, 0]), torch.full((2, 3), 7.0), factor=torch.zeros(0, 3)
    )
    assert held.classes == [0]
    assert held.means.tolist() == [[7.0] * 3, [0.0] * 3]


@examples(40)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=5), st.sampled_from([0.0, 1e8])
)
def test_without_scatters_they_merge_to_the_same_bits(sizes, offset):
    rng = np.random.default_rng(len(sizes))
    parts = [stats(*random_data(rng, n, 6, offset)) for n in sizes]
    wanted = sum(parts)
    for content in ("pooled", "means"):
        found = sum(part.to(content) for part in parts)
        assert torch.equal(found.counts, wanted.counts)
        assert torch.equal(found.means, wanted.means)
        assert torch.equal(found.located.low, wanted.located.low)


def test_contents_do_not_mix_and_there_is_no_more_than_was_kept():
    held = stats(*random_data(np.random.default_rng(5), 20, 5))
    kinds = {c: held.to(c) for c in ("class", "pooled", "means")}
    for one, other in itertools.permutations(kinds, 2):
        for combine in (operator.add, operator.sub):
            with pytest.raises(StatisticsError, match="cannot be combined"):
                combine(kinds[one], kinds[other])
    for less, more in (("pooled", "class"), ("means", "pooled"), ("means", "class")):
        with pytest.raises(StatisticsError, match="is needed, but the statistics"):
            kinds[less].to(more)
