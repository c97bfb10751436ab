"""From image files by a CLIP model and the cache to a run's results."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import add_tiny_clip, write_images

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.errors import ConfigError

pytest.importorskip("open_clip")


@pytest.fixture
def tree(tmp_path) -> Path:
    return write_images(tmp_path / "tree", per_class=8)


@pytest.fixture
def overrides(tree, tmp_path) -> list[str]:
    settings = {
        "data.type": "image_folder@ggeur",
        "data.root": tree,
        "data.splitter": "iid",
        "data.splitter_args": "[]",
        "federate.client_num": 2,
        "federate.total_round_num": 8,
        "train.optimizer.lr": 0.2,
        "ggeur.step1_size": 20,
        "ggeur.step2_size": 5,
        "ggeur.encoder.model": add_tiny_clip(tmp_path),
        "ggeur.encoder.pretrained": "none",
        "ggeur.encoder.device": "cpu",
        "ggeur.encoder.num_workers": 1,
        "ggeur.encoder.cache": tmp_path / "cache",
    }
    return [str(part) for pair in settings.items() for part in pair]


def test_wrong_encoder_settings_are_listed_before_anything_is_read(
    quickstart, overrides
):
    wrong = ["ggeur.encoder.batch_size", "0", "ggeur.encoder.device", "gpu"]
    wrong += ["ggeur.encoder.name", "hog", "ggeur.encoder.quick_gelu", "True"]
    wrong += ["ggeur.encoder.cache", ""]
    with pytest.raises(ConfigError) as caught:
        load_config(quickstart, [*overrides, *wrong])
    message = str(caught.value)
    for name in ("batch_size: must be a whole", "device: must be auto", "cache: must"):
        assert f"ggeur.encoder.{name}" in message
    assert "ggeur.encoder.quick_gelu: must be one of auto, with, without" in message
    assert "ggeur.encoder.model, ggeur.encoder.pretrained, " in message
    assert "the encoder 'hog' does not use this" in message
