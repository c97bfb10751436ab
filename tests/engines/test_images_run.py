"""Wrong settings of an encoder, before a run reads images."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.errors import ConfigError


def test_wrong_encoder_settings_are_listed_before_anything_is_read(quickstart):
    wrong = ["data.type", "image_folder@ggeur", "data.root", "nowhere"]
    wrong += ["ggeur.encoder.batch_size", "0", "ggeur.encoder.device", "gpu"]
    wrong += ["ggeur.encoder.name", "hog", "ggeur.encoder.quick_gelu", "True"]
    wrong += ["ggeur.encoder.cache", "", "ggeur.encoder.model", "x"]
    wrong += ["ggeur.encoder.pretrained", "y"]
    with pytest.raises(ConfigError) as caught:
        load_config(quickstart, wrong)
    message = str(caught.value)
    for name in ("batch_size: must be a whole", "device: must be auto", "cache: must"):
        assert f"ggeur.encoder.{name}" in message
    assert "ggeur.encoder.quick_gelu: must be one of auto, with, without" in message
    assert "ggeur.encoder.model, ggeur.encoder.pretrained, " in message
    assert "the encoder 'hog' does not use this" in message
