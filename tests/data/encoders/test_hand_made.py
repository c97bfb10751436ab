"""The encoders hog and pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from federatedscope_ggeur.data import EncoderSettings, build_encoder
from federatedscope_ggeur.errors import ConfigError

CPU = torch.device("cpu")


def image_of(values: np.ndarray) -> Image.Image:
    return Image.fromarray(values.astype(np.uint8))


def features(settings: EncoderSettings, image: Image.Image) -> torch.Tensor:
    encoder = build_encoder(settings, CPU)
    return encoder.encode(encoder.preprocess(image)[None])[0]


def test_pixels_are_the_image():
    values = np.arange(4 * 4 * 3).reshape(4, 4, 3)
    found = features(EncoderSettings("pixels", image_size=4), image_of(values))
    assert torch.allclose(found, torch.from_numpy(values / 255).float().reshape(-1))


def test_hog_tells_edges_apart_and_not_colours():
    stripes = np.zeros((64, 64, 3))
    stripes[:, ::8] = 255
    upright = features(EncoderSettings("hog"), image_of(stripes))
    lying = features(EncoderSettings("hog"), image_of(stripes.swapaxes(0, 1)))
    assert upright.shape == (1764,)
    assert torch.dot(upright, lying) < 0.5 * torch.dot(upright, upright)


@pytest.mark.parametrize("name", ["hog", "pixels"])
def test_identity_follows_the_settings(name):
    found = {
        build_encoder(settings, CPU).name
        for settings in (
            EncoderSettings(name),
            EncoderSettings(name, image_size=32),
            EncoderSettings(name, normalize=True),
        )
    }
    assert len(found) == 3


def test_normalised_features_have_length_one():
    image = image_of(np.full((20, 30, 3), 99))
    found = features(EncoderSettings("pixels", normalize=True), image)
    assert found.norm().item() == pytest.approx(1, abs=1e-6)


def test_hog_refuses_images_smaller_than_a_block():
    with pytest.raises(ConfigError, match="16 pixels or more, got 8"):
        build_encoder(EncoderSettings("hog", image_size=8), CPU)
