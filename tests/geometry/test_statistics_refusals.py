"""Class statistics refuse what they cannot use, by name."""

import pytest
import torch

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import Statistics

NUM_CLASSES = 3
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("features", "labels", "problem"),
    [
        ([[0.0], [NAN]], [0, 1], "NaN or infinity, first in row 1"),
        ([[INF], [0.0]], [0, 1], "NaN or infinity, first in row 0"),
        ([[0.0], [1.0]], [0, 3], r"label 3 in row 1 is out of range 0\.\.2"),
        ([[0.0], [1.0]], [-1, 0], "label -1 in row 0"),
        ([[0.0], [1.0]], [0], "2 rows of features have 1 label"),
        ([0.0, 1.0], [0, 1], r"\(n, D\).*shape \(2,\)"),
        ([[], []], [0, 1], r"shape \(2, 0\)"),
        ([[0], [1]], [0, 1], "features must be a floating-point array.*int64"),
        ([[0.0], [1.0]], [[0], [1]], r"labels must be .* shape \(2, 1\)"),
        ([[0.0], [1.0]], [0.0, 1.0], "labels must be an integer array.*float32"),
    ],
)
def test_bad_embeddings_are_refused(features, labels, problem):
    features, labels = torch.tensor(features), torch.tensor(labels)
    with pytest.raises(StatisticsError, match=problem):
        Statistics.from_embeddings(features, labels, NUM_CLASSES)


def test_what_does_not_fit_is_refused():
    a = Statistics.from_embeddings(
        torch.ones(3, 2), torch.tensor([0, 0, 1]), NUM_CLASSES
    )
    for other in (Statistics.empty(3, 5), Statistics.empty(4, 2)):
        for operation in (lambda x, y: x + y, lambda x, y: x - y):
            with pytest.raises(StatisticsError, match="do not fit"):
                operation(a, other)
    both = Statistics.from_embeddings(torch.ones(2, 2), torch.tensor([1, 1]), 3)
    with pytest.raises(StatisticsError, match="remove 2 samples of class 1 from 1"):
        a - both
    with pytest.raises(StatisticsError, match=r"\[1\] have samples without a cov"):
        Statistics.from_moments(a.counts, a.means, {0: torch.zeros(0, 2)})
    with pytest.raises(TypeError):
        a + 1
