"""The train/test split: exact sizes, disjoint, stratified, keyed by seed and domain."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.data import Embeddings, check_splits, validation_share
from federatedscope_ggeur.data.split import (
    deal_evenly,
    hold_out,
    split_domain,
    stratified_split,
)
from federatedscope_ggeur.errors import ConfigError, DataError

labels_of_any_mix = st.lists(st.integers(0, 6), max_size=80).map(
    lambda values: np.array(values, dtype=np.int64)
)


def numbered(n, name="photo"):
    """Rows that can be told apart: the feature is the row's number."""
    features = torch.arange(n, dtype=torch.float32)[:, None]
    return Embeddings(features, torch.arange(n) % 3, name)


def numbers(rows):
    return rows.features[:, 0].tolist()


@pytest.mark.slow
@given(labels_of_any_mix, st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 9))
def test_sizes_are_exact_and_parts_disjoint(labels, train, test, seed):
    test = min(test, 1 - train)
    a, b = stratified_split(labels, train, test, np.random.default_rng(seed))
    n = len(labels)
    assert len(a) == round(train * n)
    assert len(a) + len(b) == round((train + test) * n)
    assert len({*a, *b}) == len(a) + len(b)
    assert (np.diff(a) > 0).all()
    assert (np.diff(b) > 0).all()
    for c in set(labels.tolist()):
        count = (labels == c).sum()
        # one row for rounding the class, one for rounding the domain's total
        assert abs((labels[a] == c).sum() - train * count) <= 2


@pytest.mark.slow
@given(labels_of_any_mix, st.integers(1, 9), st.integers(0, 9))
def test_deal_is_even_overall_and_in_every_class(labels, parts, seed):
    hands = deal_evenly(labels, parts, np.random.default_rng(seed))
    assert sorted(np.concatenate(hands).tolist()) == list(range(len(labels)))
    for rows in [labels >= 0] + [labels == c for c in range(7)]:
        sizes = [int(rows[hand].sum()) for hand in hands]
        assert max(sizes) - min(sizes) <= 1


@settings(max_examples=20)
@given(st.integers(0, 10**9))
def test_same_seed_same_split_other_seed_other_split(seed):
    first = split_domain(numbered(90), [0.7, 0.0, 0.3], seed)
    again = split_domain(numbered(90), [0.7, 0.0, 0.3], seed)
    other = split_domain(numbered(90), [0.7, 0.0, 0.3], seed + 1)
    named = split_domain(numbered(90, "sketch"), [0.7, 0.0, 0.3], seed)
    assert numbers(first.train) == numbers(again.train)
    assert numbers(first.train) != numbers(other.train)
    assert numbers(first.train) != numbers(named.train)


def test_fractions_below_one_leave_rows_out():
    domain = split_domain(numbered(100), [0.3, 0.0, 0.2], 0)
    assert (len(domain.train), len(domain.test)) == (30, 20)


def test_domain_too_small_to_split_is_refused():
    with pytest.raises(DataError, match=r"photo.*1 row.*data\.splits"):
        split_domain(numbered(1), [0.7, 0.0, 0.3], 0)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ([0.7, 0.3], r"data\.splits.*three numbers"),
        (0.7, r"data\.splits.*three numbers"),
        (["0.7", 0.0, 0.3], r"data\.splits.*three numbers"),
        ([0.7, 0.0, -0.3], r"data\.splits.*between 0 and 1"),
        ([float("nan"), 0.0, 0.3], r"data\.splits.*between 0 and 1"),
        ([0.0, 0.0, 0.3], r"data\.splits.*more than 0"),
        ([0.7, 0.0, 0.0], r"data\.splits.*more than 0"),
        ([0.7, 0.0, 0.4], r"data\.splits.*at most 1"),
    ],
)
def test_impossible_splits_are_refused(splits, message):
    with pytest.raises(ConfigError, match=message):
        check_splits(splits)


@pytest.mark.parametrize("splits", [[0.7, 0.0, 0.3], (0.9, 0, 0.1), [0.8, 0.1, 0.1]])
def test_good_splits_pass(splits):
    check_splits(splits)


class TestHoldOut:
    """Rows for validation, of one client."""

    @pytest.mark.slow
    @given(
        st.lists(st.integers(0, 30), min_size=1, max_size=6),
        st.floats(0, 0.9),
        st.integers(0, 99),
    )
    def test_are_disjoint_and_no_class_loses_its_last(self, sizes, share, seed):
        labels = np.repeat(np.arange(len(sizes)), sizes)
        rng = np.random.default_rng(seed)
        rng.shuffle(labels)
        train, val = hold_out(labels, share, rng)
        both = np.concatenate([train, val])
        assert sorted(both.tolist()) == list(range(len(labels)))
        spare = sum(max(0, n - 1) for n in sizes)
        assert len(val) == min(round(share * len(labels)), spare)
        for c, n in enumerate(sizes):
            held = int((labels[val] == c).sum())
            assert held <= max(0, n - 1)
            wanted = len(val) * max(0, n - 1) / max(1, spare)
            assert abs(held - wanted) <= 1

    def test_validation_takes_its_part_of_what_is_not_for_testing(self):
        assert validation_share([0.6, 0.2, 0.2]) == pytest.approx(0.25)
        assert validation_share([0.7, 0.0, 0.3]) == 0
        domain = split_domain(numbered(100), [0.6, 0.2, 0.2], 0)
        assert (len(domain.train), len(domain.test)) == (80, 20)
        same = split_domain(numbered(100), [0.8, 0.0, 0.2], 0)
        assert numbers(same.train) == numbers(domain.train)
