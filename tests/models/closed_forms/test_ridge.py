"""Ridge regression: the plain oracle, scikit-learn's, what is refused."""

import closed_form_oracle as oracle
import numpy as np
import pytest
from sklearn.linear_model import Ridge
from solving import (
    ENOUGH,
    FEW,
    OTHERS,
    OTHERS_LABELS,
    OTHERS_ROWS,
    check_linear,
    refuse,
    stats,
    weights_of,
)

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.ridge import RidgeRegression


@pytest.mark.parametrize("strength", [0.01, 1.0, 10.0])
def test_equals_the_oracle(data, strength):
    form = RidgeRegression(strength=strength)
    check_linear(data, form, oracle.relative_ridge(*data, strength))
    assert form.solve(ENOUGH).report["strength"] == strength


@pytest.mark.parametrize("alpha", [0.01, 1.0, 100.0])
def test_with_alpha_equals_the_oracle(data, alpha):
    check_linear(data, RidgeRegression(alpha=alpha), oracle.ridge(*data, alpha))


def test_strength_equals_scikit_learns():
    size = OTHERS_ROWS.var(axis=0).sum() * len(OTHERS_ROWS) / OTHERS_ROWS.shape[1]
    other = Ridge(alpha=0.5 * size, solver="cholesky")
    other.fit(OTHERS_ROWS, np.eye(4)[OTHERS_LABELS])
    found = weights_of(RidgeRegression(strength=0.5).solve(OTHERS).model)
    oracle.assert_close(found[0], oracle.centred(other.coef_))
    oracle.assert_close(found[1], oracle.centred(other.intercept_))


def test_without_any_scatter_the_largest_class_wins():
    solved = RidgeRegression().solve(stats(np.ones((3, 2)), np.array([0, 1, 1]), 3))
    weight, bias = weights_of(solved.model)
    assert not weight.any()
    assert bias.argmax() == 1


def test_what_stands_for_an_open_strength_adds_what_ldas_share_does():
    share = LinearDiscriminant().untuned().shrinkage
    assert RidgeRegression().untuned().strength == pytest.approx(share / (1 - share))


@pytest.mark.parametrize("name", ["alpha", "strength"])
def test_next_to_nothing_is_refused(name):
    refuse(RidgeRegression(**{name: 1e-30}), FEW, rf"raise ggeur\.ridge\.{name}")


def test_alpha_and_strength_do_not_go_together():
    with pytest.raises(ConfigError, match=r"ridge\.alpha: cannot go with ggeur.ridge."):
        RidgeRegression(alpha=1.0, strength=1.0)
    assert not RidgeRegression(alpha=1.0).is_open
