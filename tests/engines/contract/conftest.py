"""The engine that a test asks for."""

import pytest
from engines_under_test import ENGINES


@pytest.fixture
def engine(request, tmp_path):
    """The engine of this name."""
    engine, *needs = ENGINES[request.param]
    folder = tmp_path / "runs"
    folder.mkdir()
    one = engine(folder, *map(request.getfixturevalue, needs))
    yield one
    one.close()
