"""Encoders by name, and their identities.

Tests of data/encoders/keys.py.
"""

from __future__ import annotations

import pytest
import torch

from federatedscope_ggeur.data import (
    Encoder,
    EncoderSettings,
    build_encoder,
    check_encoder,
    pick_device,
    register_encoder,
)
from federatedscope_ggeur.data.encoders import ENCODERS
from federatedscope_ggeur.errors import ConfigError

CPU = torch.device("cpu")


def test_one_function_adds_an_encoder(monkeypatch):
    monkeypatch.setattr(ENCODERS, "_parts", dict(ENCODERS))

    @register_encoder("mean", model="plain")
    def make(settings, device):
        return Encoder(
            f"mean {settings.model}",
            {"model": settings.model},
            1,
            lambda image: torch.tensor([1.0]),
            lambda batch: batch,
        )

    encoder = build_encoder(EncoderSettings("mean"), CPU)
    assert encoder.identity == {"encoder": "mean", "model": "plain"}
    assert encoder.name.startswith("mean plain, id ")
    other = build_encoder(EncoderSettings("mean", model="other"), CPU)
    assert other.name[-12:] != encoder.name[-12:]


def test_unknown_encoders_are_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'clop'; known: .*hog, open_clip, timm"):
        check_encoder(EncoderSettings("clop"))


def test_settings_that_an_encoder_has_not_are_refused():
    settings = EncoderSettings("hog", model="ViT-B-16", precision="bf16")
    with pytest.raises(ConfigError) as caught:
        build_encoder(settings, CPU)
    assert "ggeur.encoder.model, ggeur.encoder.precision" in str(caught.value)
    with pytest.raises(ConfigError, match=r"ggeur\.encoder\.image_size"):
        check_encoder(EncoderSettings("open_clip", image_size=32))


def test_building_draws_nothing_from_the_global_generator(tiny):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    build_encoder(EncoderSettings("open_clip", tiny, "none"), CPU)
    assert torch.equal(torch.rand(3), expected)


def test_devices():
    assert pick_device("cpu") == CPU
    assert pick_device("auto").type in ("cpu", "cuda")
    with pytest.raises(ConfigError, match="there is no 'cuda:99'"):
        pick_device("cuda:99")
