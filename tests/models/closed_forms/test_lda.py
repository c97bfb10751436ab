"""LDA: the plain oracle, scikit-learn's, without any scatter, what is refused."""

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch
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


@pytest.mark.parametrize("rho", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("priors", ["counts", "none"])
def test_equals_the_oracle(data, rho, priors):
    form = LinearDiscriminant(shrinkage=rho, priors=priors)
    check_linear(data, form, oracle.lda(*data, rho, priors == "counts"))
    report = form.solve(stats(*data, 5)).report
    assert (report["shrinkage"], report["shrinkage_rule"]) == (rho, "set")


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
