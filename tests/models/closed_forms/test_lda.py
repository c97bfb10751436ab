"""LDA: the plain oracle, scikit-learn's, without any scatter, what is refused."""

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from solving import (
    FEW,
    LABELS,
    OTHERS,
    OTHERS_LABELS,
    OTHERS_ROWS,
    ROWS,
    check_linear,
    refuse,
    singular,
    stats,
    weights_of,
)

from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import to_vector
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant, NearestMean


@pytest.mark.parametrize("rho", [None, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("priors", ["counts", "none"])
def test_equals_the_oracle(data, rho, priors):
    form = LinearDiscriminant(shrinkage=rho, priors=priors, rule="ledoit_wolf")
    check_linear(data, form, oracle.lda(*data, rho, priors == "counts"))
    report = form.solve(stats(*data, 5)).report
    wanted = oracle.common_covariance(*data, rho)[1]
    assert report["shrinkage"] == pytest.approx(wanted, rel=1e-9)
    rule = "ledoit-wolf (gaussian)" if rho is None else "set"
    assert report["shrinkage_rule"] == rule


def test_equals_scikit_learns():
    other = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3)
    other.fit(OTHERS_ROWS, OTHERS_LABELS)
    # There the common covariance is divided by N, here by N - C.
    n, log_priors = len(OTHERS_ROWS), np.log(other.priors_)
    scale = (n - 4) / n
    bias = scale * (other.intercept_ - log_priors) + log_priors
    found = weights_of(LinearDiscriminant(shrinkage=0.3).solve(OTHERS).model)
    oracle.assert_close(found[0], oracle.centred(scale * other.coef_))
    oracle.assert_close(found[1], oracle.centred(bias))


class TestWithoutScatter:
    points = np.array([[0.0, 0, 0], [4, 0, 0], [0, 2, 0]])

    @pytest.mark.parametrize("rho", [None, 0.5])
    @pytest.mark.parametrize("copies", [1, 4])
    def test_it_becomes_nearest_means(self, rho, copies):
        rows, labels = np.repeat(self.points, copies, axis=0), np.arange(3)
        statistics = stats(rows, labels.repeat(copies), 3)
        fitted = LinearDiscriminant(shrinkage=rho).solve(statistics)
        nearest = NearestMean().solve(statistics).model
        assert torch.equal(to_vector(fitted.model), to_vector(nearest))
        assert fitted.report["shrinkage"] == 1.0
        assert fitted.report["shrinkage_rule"].startswith("fallback: no scatter")

    def test_one_degree_of_freedom_leaves_the_spherical_covariance(self):
        rows = np.vstack([self.points, [[4.0, 0, 6]]])
        form = LinearDiscriminant(rule="ledoit_wolf")
        fitted = form.solve(stats(rows, np.array([0, 1, 2, 1]), 3))
        assert fitted.report["shrinkage"] == 1.0
        assert fitted.report["shrinkage_rule"].startswith("fallback: one degree")
        means = np.array([[0.0, 0, 0], [4, 0, 3], [0, 2, 0]])
        size = (3.0**2 + 3.0**2) / 3  # tr S0 / D
        oracle.assert_close(
            fitted.model.classifier.weight.double().numpy(),
            oracle.centred(means / size),
        )


class TestRefusals:
    @pytest.mark.parametrize("offset", [0.0, 1e3])
    def test_a_singular_common_covariance(self, offset):
        for statistics in singular(offset):
            form = LinearDiscriminant(shrinkage=0.0)
            refuse(form, statistics, "raise ggeur.lda.shrinkage")

    def test_too_few_samples_whatever_rounding_makes_of_their_rank(self):
        noise = 1e-7 * torch.eye(4).double()
        summed = FEW.to("pooled")
        rounded = Statistics.of_pooled(
            FEW.counts, FEW.means, scatter=summed.scatter() + noise
        )
        form = LinearDiscriminant(shrinkage=0.0)
        refuse(form, rounded, "raise ggeur.lda.shrinkage")

    def test_weights_beyond_float32(self):
        tiny = stats(1e-42 * ROWS, LABELS, 3)
        refuse(LinearDiscriminant(), tiny, "weights too large for float32")


# Ledoit and Wolf's rule beside scikit-learn's; refusals: test_lda.py.


@pytest.mark.parametrize(("n", "dim"), [(400, 20), (60, 20), (40, 80)])
def test_ledoit_and_wolfs_rule_on_gaussian_data(n, dim):
    """Both estimate one number, the share that brings S nearest to the truth."""
    rng = np.random.default_rng(n)
    mine, theirs = [], []
    for _ in range(20):
        rows = rng.normal(size=(n, dim)) * np.linspace(0.3, 2, dim)
        fitted = LinearDiscriminant(rule="ledoit_wolf").solve(
            stats(rows, np.zeros(n, int), 1)
        )
        mine.append(fitted.report["shrinkage"])
        theirs.append(ledoit_wolf(rows)[1])
    assert np.mean(mine) == pytest.approx(np.mean(theirs), rel=0.1)
