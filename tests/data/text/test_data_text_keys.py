"""What `ggeur.text.templates` takes."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.data.text import TEXT_KEYS


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (["one"], ""),
        (("imagenet80", "a {} in the snow"), ""),
        ([], "1 to 1000"),
        ("one", "must be a list"),
        (["two"], "neither one of one, imagenet80"),
        (["{} {}"], "one {}"),
        ([3], "texts"),
        (["{}" + 300 * "x"], "at most 300"),
        (["one"] * 1001, "1 to 1000"),
    ],
)
def test_templates(value, problem):
    found = TEXT_KEYS[0].rule(value)
    assert problem in found
    assert bool(found) == bool(problem)
