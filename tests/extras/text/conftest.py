"""A small CLIP model with random weights, and its text side."""

from __future__ import annotations

import pytest
from pictures import add_text_clip

from federatedscope_ggeur.data import (
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
)
from federatedscope_ggeur.extras.text.load import load_tower


@pytest.fixture
def encoding(tmp_path) -> EncodingSettings:
    model = add_text_clip(tmp_path)
    return EncodingSettings(
        EncoderSettings("open_clip", model, "none"),
        ExtractionSettings(num_threads=1),
        device="cpu",
        cache=str(tmp_path / "cache"),
    )


@pytest.fixture
def loaded(encoding):
    """The text side, and the encoder that it is of."""
    return load_tower(encoding)


@pytest.fixture
def tower(loaded):
    return loaded[0]
