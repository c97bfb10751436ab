"""QDA: the plain oracle, scipy's densities, small classes, what is refused."""

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from solving import (
    ENOUGH,
    FEW,
    LABELS,
    OTHERS,
    OTHERS_LABELS,
    OTHERS_ROWS,
    ROWS,
    refuse,
    singular,
    stats,
)

from federatedscope_ggeur.geometry import ClassStatistics, SummedStatistics
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.qda import QuadraticDiscriminant


def qda(rho=None, g=0.5, priors="counts"):
    lda = LinearDiscriminant(shrinkage=rho)
    return QuadraticDiscriminant(shrinkage=g, priors=priors, lda=lda)


@pytest.mark.parametrize("g", [0.1, 0.5, 1.0])
@pytest.mark.parametrize(("rho", "priors"), [(None, "counts"), (0.2, "none")])
def test_equals_the_oracle(data, g, rho, priors):
    rows, labels = data
    model = qda(rho, g, priors).solve(stats(rows, labels, 5)).model
    # What is scored is what float32 holds, which far from the origin is coarse.
    points = torch.from_numpy(rows[:20] + 0.1).float()
    by_counts = priors == "counts"
    scores = oracle.qda(rows, labels, points.double().numpy(), rho, g, by_counts)
    found = model(points)[:, oracle.seen(labels)].double().numpy()
    coarse = 1e-5 if abs(rows).max() < 100 else 1e-3
    oracle.assert_close(oracle.centred(found.T), oracle.centred(scores.T), coarse)


def test_equals_scipys_densities():
    scores = []
    labels = OTHERS_LABELS
    for c in range(4):
        members = OTHERS_ROWS[labels == c]
        density = multivariate_normal(members.mean(axis=0), np.cov(members.T))
        scores.append(density.logpdf(OTHERS_ROWS) + np.log(len(members) / 300))
    model = qda(g=0.0).solve(OTHERS).model
    found = model(torch.from_numpy(OTHERS_ROWS).float()).double().numpy()
    oracle.assert_close(oracle.centred(found.T), oracle.centred(np.array(scores)), 1e-5)


def test_a_class_of_one_sample_takes_the_common_covariance():
    rows, labels = oracle.make_data(np.random.default_rng(2), 40, 3, 2)
    rows, labels = np.vstack([rows, [[5.0, 5, 5]]]), np.append(labels, 2)
    model = qda(0.1, 0.0).solve(stats(rows, labels, 3)).model
    common, _ = oracle.common_covariance(rows, labels, 0.1)
    step = np.array([1.0, 2.0, -1.0])
    at = torch.tensor(np.array([rows[-1], rows[-1] + step])).float()
    logits = model(at)[:, 2].double()
    wanted = step @ np.linalg.solve(common, step) / 2
    assert float(logits[0] - logits[1]) == pytest.approx(wanted, rel=1e-5)


def test_offsets_are_centred():
    """So that float32 keeps their differences where log-determinants are large."""
    rows, labels = oracle.make_data(np.random.default_rng(5), 50, 4, 3)
    model = qda().solve(stats(1e-9 * rows, labels, 3)).model
    assert float(model.offsets.sum()) == pytest.approx(0, abs=1e-5)


def test_summed_statistics_are_refused():
    refuse(qda(), SummedStatistics.from_classes(ENOUGH), "covariance for each class")


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_a_singular_common_covariance_is_refused(offset):
    for statistics in singular(offset):
        refuse(qda(rho=0.0), statistics, "raise ggeur.lda.shrinkage")


def test_too_few_samples_are_refused_whatever_rounding_makes_of_their_rank():
    noise = 1e-7 * torch.eye(4).double()
    covariances = {c: FEW.covariance(c) + noise for c in (0, 1)}
    by_class = ClassStatistics.from_moments(
        FEW.counts, FEW.means, covariances=covariances
    )
    refuse(qda(g=0.0), by_class, "class 0 with 2")


def test_a_singular_covariance_of_a_class_is_refused():
    labels = np.where(np.arange(30) < 4, 2, LABELS % 2)
    message = "class 2 with 4 samples in 4 dim.*raise ggeur.qda.shrinkage"
    refuse(qda(g=0.0), stats(ROWS, labels, 3), message)


def test_weights_beyond_float32_are_refused():
    refuse(qda(), stats(1e-42 * ROWS, LABELS, 3), "beyond the range of float32")
