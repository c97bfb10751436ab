"""Data of many kinds."""

import pytest
from solving import SHAPES, make_rows


@pytest.fixture(params=SHAPES)
def data(request):
    return make_rows(request.param)
