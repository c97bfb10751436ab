"""The min-count threshold: a class of too few samples leaves no trace."""

import json

import pytest
import torch

from federatedscope_ggeur.federation.messages import MessageSchema, StatisticsUpload
from federatedscope_ggeur.federation.privacy import apply_min_count
from federatedscope_ggeur.geometry import ClassStatistics

# Class c has SIZES[c] samples.
SIZES = (0, 1, 2, 4, 5)
DIM = 6
SCHEMA = MessageSchema(len(SIZES), DIM, 1)


def make_rows():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(len(SIZES)).repeat_interleave(torch.tensor(SIZES))
    return torch.randn(len(labels), DIM, generator=generator), labels


def upload_with_threshold(min_samples):
    statistics = ClassStatistics.from_embeddings(*make_rows(), len(SIZES))
    return StatisticsUpload(1, "art", apply_min_count(statistics, min_samples))


@pytest.mark.parametrize(
    ("min_samples", "kept"),
    [(1, [1, 2, 3, 4]), (2, [2, 3, 4]), (3, [3, 4]), (5, [4]), (6, [])],
)
def test_classes_below_the_threshold_are_left_out(min_samples, kept):
    statistics = upload_with_threshold(min_samples).statistics
    assert statistics.classes == kept
    for c, size in enumerate(SIZES):
        assert statistics.counts[c] == (size if c in kept else 0)
        assert bool(statistics.means[c].any()) == (c in kept)


@pytest.mark.parametrize("min_samples", [1, 2, 5])
def test_what_is_kept_is_unchanged(min_samples):
    features, labels = make_rows()
    statistics = upload_with_threshold(min_samples).statistics
    assert statistics.classes
    for c in statistics.classes:
        rows = features[labels == c].double()
        torch.testing.assert_close(statistics.means[c], rows.mean(dim=0))
        torch.testing.assert_close(
            statistics.covariance(c), torch.cov(rows.T, correction=0)
        )


@pytest.mark.parametrize("min_samples", [2, 5, 6])
def test_bytes_are_those_of_a_client_without_the_withheld_classes(min_samples):
    features, labels = make_rows()
    held = torch.tensor(SIZES)[labels] >= min_samples
    without = ClassStatistics.from_embeddings(features[held], labels[held], len(SIZES))
    data = upload_with_threshold(min_samples).to_bytes()
    assert data == StatisticsUpload(1, "art", without).to_bytes()


def test_no_withheld_number_is_in_the_bytes():
    features, labels = make_rows()
    data = upload_with_threshold(5).to_bytes()
    for row in features[labels < 4]:
        for value in row:
            assert value.numpy().tobytes() not in data
    for c in (1, 2, 3):
        mean = features[labels == c].double().mean(dim=0)
        for value in (*mean, *mean.float()):
            assert value.numpy().tobytes() not in data
    shapes = header_of(data)
    assert shapes["classes"]["shape"] == [1]
    assert shapes["counts"]["shape"] == [1]


def header_of(data):
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length])


def test_all_below_the_threshold_is_a_message_of_no_classes():
    data = upload_with_threshold(6).to_bytes()
    received = StatisticsUpload.from_bytes(data, SCHEMA, "client 1")
    assert received.statistics.classes == []
    assert int(received.statistics.counts.sum()) == 0
