"""Ridge regression: the plain oracle, scikit-learn's, what is refused."""

import closed_form_oracle as oracle
import numpy as np
import pytest
from sklearn.linear_model import Ridge
from solving import (
    FEW,
    OTHERS,
    OTHERS_LABELS,
    OTHERS_ROWS,
    check_linear,
    refuse,
    weights_of,
)

from federatedscope_ggeur.models.closed_forms.ridge import RidgeRegression


@pytest.mark.parametrize("alpha", [0.01, 1.0, 100.0])
def test_equals_the_oracle(data, alpha):
    check_linear(data, RidgeRegression(alpha=alpha), oracle.ridge(*data, alpha))


def test_equals_scikit_learns():
    extended = np.hstack([OTHERS_ROWS, np.ones((len(OTHERS_ROWS), 1))])
    other = Ridge(alpha=2.5, fit_intercept=False, solver="cholesky")
    other.fit(extended, np.eye(4)[OTHERS_LABELS])
    found = weights_of(RidgeRegression(alpha=2.5).solve(OTHERS).model)
    oracle.assert_close(found[0], oracle.centred(other.coef_[:, :-1]))
    oracle.assert_close(found[1], oracle.centred(other.coef_[:, -1]))


def test_next_to_no_alpha_is_refused():
    refuse(RidgeRegression(alpha=1e-30), FEW, "raise ggeur.ridge.alpha")
