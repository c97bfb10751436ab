"""Nearest class means: the plain oracle."""

import closed_form_oracle as oracle
import numpy as np
import pytest
from solving import check_linear

from federatedscope_ggeur import FederatedClassifier
from federatedscope_ggeur.models.closed_forms.lda import NearestMean


def test_equals_the_oracle(data):
    check_linear(data, NearestMean(), oracle.ncm(*data))


def test_rows_may_be_tiny():
    rng, y = np.random.default_rng(1), np.arange(120) % 3
    X = np.eye(3, 6)[y] + rng.normal(size=(120, 6)) / 3
    whole, tiny = (
        FederatedClassifier("ncm").fit(rows, y).predict_proba(rows)
        for rows in (X, X * 1e-30)
    )
    assert tiny == pytest.approx(whole, abs=1e-3)
