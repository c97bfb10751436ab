"""Images to embed, and how, with a cache of the test's own."""

from pathlib import Path

import pytest
from pictures import write_images

from federatedscope_ggeur import data


@pytest.fixture(autouse=True)
def _unregistered_afterwards(monkeypatch):
    for registry in (data.ENCODERS, data.IMAGE_READERS, data.READERS, data.SPLITTERS):
        monkeypatch.setattr(registry, "_parts", dict(registry))


@pytest.fixture
def tree(tmp_path) -> Path:
    return write_images(tmp_path / "tree")


@pytest.fixture
def settings(tmp_path) -> data.EncodingSettings:
    return data.EncodingSettings(
        data.EncoderSettings("pixels", image_size=4),
        data.ExtractionSettings(batch_size=4, num_workers=0, num_threads=1),
        device="cpu",
        cache=str(tmp_path / "cache"),
    )
