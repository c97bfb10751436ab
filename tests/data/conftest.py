"""Images to embed, and how, with a cache of the test's own."""

from pathlib import Path

import pytest
from pictures import write_images

from federatedscope_ggeur.data import (
    ENCODERS,
    IMAGE_READERS,
    READERS,
    SPLITTERS,
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
)


@pytest.fixture(autouse=True)
def _unregistered_afterwards(monkeypatch):
    for registry in (ENCODERS, IMAGE_READERS, READERS, SPLITTERS):
        monkeypatch.setattr(registry, "_parts", dict(registry))


@pytest.fixture
def tree(tmp_path) -> Path:
    return write_images(tmp_path / "tree")


@pytest.fixture
def settings(tmp_path) -> EncodingSettings:
    return EncodingSettings(
        EncoderSettings("pixels", image_size=4),
        ExtractionSettings(batch_size=4, num_workers=0, num_threads=1),
        device="cpu",
        cache=str(tmp_path / "cache"),
    )
