"""The zero-shot head: its weights, and planted features.

Tests of extras/text/classes.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from text_oracle import class_texts, unit

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.classes import ClassTexts
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models.closed_forms import CLOSED_FORMS, Components, Rows

NOTHING = Statistics.empty(3, 4, "means")


def test_weights_are_the_scaled_features_and_no_statistics_are_needed():
    texts = class_texts(np.random.default_rng(0).normal(size=(3, 4)), scale=50.0)
    solved = CLOSED_FORMS["zeroshot"]().knowing(texts).solve(NOTHING)
    assert torch.equal(solved.model.classifier.weight, 50 * texts.features)
    assert torch.equal(solved.model.classifier.bias, torch.zeros(3))
    assert solved.report == {
        "rows": 0, "classes": 3, "left_out": 0, "logit_scale": 50.0
    }  # fmt: skip
    with pytest.raises(ConfigError, match="zeroshot needs text features"):
        CLOSED_FORMS["zeroshot"]().solve(NOTHING)


def test_rows_left_out_have_its_cosine_logits():
    rng = np.random.default_rng(1)
    texts, rows = class_texts(rng.normal(size=(3, 4))), rng.normal(size=(5, 4))
    form = CLOSED_FORMS["zeroshot"]().knowing(texts)
    held = Rows(
        torch.from_numpy(rows), torch.zeros(5, dtype=torch.int64), 1, 0,
        torch.ones(5, dtype=torch.bool),
    )  # fmt: skip
    found = form.left_out(Components.of_classes(NOTHING))(held)[0]
    expected = 10 * unit(rows) @ texts.features.double().numpy().T
    assert np.allclose(found, expected)
    assert isinstance(texts, ClassTexts)
