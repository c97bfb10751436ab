"""Looking up a key in a run's config."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.extras.studies.paper import stated_at

CONFIG = {
    "seed": 3,
    "data": {"splitter_args": [{"alpha": 0.1}, {"fraction": 0.3}], "splits": [0.7]},
}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 3),
        ("data.splits", [0.7]),
        ("data.splitter_args.alpha", 0.1),
        ("data.splitter_args.fraction", 0.3),
        ("data.splitter_args.other", None),
        ("data.splits.alpha", None),
        ("seed.more", None),
        ("none", None),
    ],
)
def test_values(key, value):
    assert stated_at(CONFIG, key) == value
