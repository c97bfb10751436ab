"""Ledoit and Wolf's rule beside scikit-learn's; refusals: test_lda.py."""

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf
from solving import stats

from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant


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
