"""Nearest class means: the plain oracle."""

import closed_form_oracle as oracle
from solving import check_linear

from federatedscope_ggeur.models.closed_forms.lda import NearestMean


def test_equals_the_oracle(data):
    check_linear(data, NearestMean(), oracle.ncm(*data))
