"""A1 and A1b: all rows where they can be solved for, none where they cannot."""

import pytest
import torch
from planted import (
    CLOCK,
    gaussian,
    only,
    relu_rows,
    transcript,
    truth_of,
    uploaded,
)

from federatedscope_ggeur.audit.base import Clock
from federatedscope_ggeur.audit.class_rows import a1, a1b, by_norms, by_vertices
from federatedscope_ggeur.geometry import ClassStatistics, SummedStatistics


def one_class(rows):
    return {1: (rows, torch.zeros(len(rows), dtype=torch.int64))}


@pytest.mark.parametrize("n", [2, 5, 8])
def test_rows_that_are_not_negative_are_recovered(n):
    clients = one_class(relu_rows(n, n))
    seen = transcript(uploads=uploaded(clients))
    found = only(a1(seen, truth_of(clients), CLOCK))
    assert found.value == n
    assert found.passed is False


@pytest.mark.slow
def test_rows_without_zeros_are_not():
    clients = one_class(gaussian(0, 6, dim=40, shift=50.0))
    seen = transcript(uploads=uploaded(clients))
    found = only(a1(seen, truth_of(clients), Clock(3)))
    assert found.value == 0 or found.value is None
    assert "safe" not in found.note


def test_a_pooled_scatter_of_two_classes_is_no_target_and_of_one_it_is():
    x, y = relu_rows(3, 10), torch.arange(10) % 2
    clients = {1: (x, y)}
    pooled = uploaded(clients, make=SummedStatistics.from_classes)
    found = only(a1(transcript(uploads=pooled), truth_of(clients), CLOCK))
    assert found.value is None
    clients = one_class(relu_rows(4, 5))
    pooled = uploaded(clients, make=SummedStatistics.from_classes)
    assert only(a1(transcript(uploads=pooled), truth_of(clients), CLOCK)).value == 5


@pytest.mark.parametrize("n", [2, 3, 4])
def test_rows_of_length_1_are_recovered_by_their_norms(n):
    x = gaussian(n, n, dim=30)
    x = x / x.norm(dim=1, keepdim=True)
    clients = one_class(x)
    seen = transcript(uploads=uploaded(clients))
    found = only(a1b(seen, truth_of(clients), CLOCK))
    assert found.value >= (n if n < 4 else 1)
    assert found.passed is False


def test_rows_of_other_lengths_are_not():
    clients = one_class(gaussian(1, 4, dim=30))
    found = only(a1b(transcript(uploads=uploaded(clients)), truth_of(clients), CLOCK))
    assert found.value == 0
    assert "not recovered in 3600 s" in found.note


def test_without_statistics_there_is_nothing_to_attack():
    clients = one_class(relu_rows(0, 5))
    for attack in (a1, a1b):
        found = only(attack(transcript(), truth_of(clients), CLOCK))
        assert found.value is None
        assert found.passed is None


def test_no_time_finds_nothing_and_says_so():
    held = ClassStatistics.from_embeddings(relu_rows(1, 5), torch.zeros(5).long(), 1)
    args = held.means[0], held.factor(0), 5, Clock(0), 0
    assert len(by_vertices(*args)) == 0
    assert len(by_norms(*args)) == 0
