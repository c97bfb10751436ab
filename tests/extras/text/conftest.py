"""A small CLIP model with random weights, and its text side."""

import pytest
from pictures import add_text_clip, write_images

from federatedscope_ggeur import data
from federatedscope_ggeur.extras.text.load import load_tower


@pytest.fixture
def encoding(tmp_path) -> data.EncodingSettings:
    model = add_text_clip(tmp_path)
    return data.EncodingSettings(
        data.EncoderSettings("open_clip", model, "none"),
        data.ExtractionSettings(num_threads=1),
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


@pytest.fixture
def clip(tmp_path) -> list:
    """Settings of a small CLIP model."""
    return [
        "ggeur.encoder.model", add_text_clip(tmp_path), "ggeur.encoder.pretrained",
        "none", "ggeur.encoder.device", "cpu", "ggeur.encoder.cache",
        tmp_path / "cache",
    ]  # fmt: skip


@pytest.fixture
def of_images(tmp_path, clip) -> list[str]:
    """Settings of a run on images, of which `images` is the folder."""
    told = [
        "data.type", "image_folder@ggeur",
        "data.root", write_images(tmp_path / "images"),
        "data.splits", "[0.6, 0.0, 0.4]", "federate.client_num", 2,
        "data.splitter", "iid", "data.splitter_args", "[]",
        "ggeur.encoder.name", "open_clip", "ggeur.encoder.num_workers", 0, *clip,
        "outdir", tmp_path / "runs",
    ]  # fmt: skip
    return [str(word) for word in told]
