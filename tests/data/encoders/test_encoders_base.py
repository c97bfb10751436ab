"""Encoders by name, and their identities."""

import logging
from dataclasses import replace

import numpy as np
import open_clip
import pytest
import torch
from open_clip import pretrained as registry
from pictures import refusal
from PIL import Image

from federatedscope_ggeur.data import (
    Encoder,
    EncoderSettings,
    build_encoder,
    check_encoder,
    pick_device,
    register_encoder,
)
from federatedscope_ggeur.data.encoders import ENCODERS
from federatedscope_ggeur.downloads import sha256_file
from federatedscope_ggeur.errors import ConfigError, PluginError

CPU = torch.device("cpu")


def test_one_function_adds_an_encoder():
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


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        (["plain"], "must return a Mapping, but returned a list"),
        ({"model": torch.nn.Flatten()}, "plain values: .*Flatten is not JSON"),
        ({"level": float("nan")}, "plain values: Out of range float"),
    ],
)
def test_an_identity_that_cannot_be_kept_is_refused(identity, said, monkeypatch):
    monkeypatch.setattr(ENCODERS, "_parts", dict(ENCODERS))

    @register_encoder("unkept")
    def make(settings, device):
        return Encoder("x", identity, 1, lambda image: image, lambda batch: batch)

    named = r"identity of the encoder 'unkept' \(.*test_encoders_base\.py, line \d+\)"
    with pytest.raises(PluginError, match=f"{named}.*{said}"):
        build_encoder(EncoderSettings("unkept"), CPU)


def test_a_precision_is_tried_on_a_tensor_alone(monkeypatch):
    monkeypatch.setattr(ENCODERS, "_parts", dict(ENCODERS))

    @register_encoder("wordy")
    def make(settings, device):
        return Encoder("words", {}, 1, lambda image: "word", lambda batch: batch)

    said = "preprocess of the encoder words.* must return a Tensor, but returned a str"
    with pytest.raises(PluginError, match=said):
        build_encoder(EncoderSettings("wordy", precision="bf16"), CPU)


def test_unknown_encoders_are_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="'clop'; known: hog, pixels, open_clip"):
        check_encoder(EncoderSettings("clop"))


def test_settings_that_an_encoder_has_not_are_refused():
    said = refusal(EncoderSettings("hog", model="ViT-B-16", precision="bf16"))
    assert "ggeur.encoder.model, ggeur.encoder.precision" in said
    with pytest.raises(ConfigError, match=r"ggeur\.encoder\.image_size"):
        check_encoder(EncoderSettings("open_clip", image_size=32))


def test_random_weights_are_always_the_same_and_leave_the_global_generator(tiny):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    settings = EncoderSettings("open_clip", tiny, "none")
    first, second = (build_encoder(settings, CPU).name for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    assert first == second
    assert "random weights" in first


def test_decoding_on_the_gpu_is_another_identity_and_slow_on_a_cpu(tiny, caplog):
    settings = EncoderSettings("open_clip", tiny, "none", decode="gpu")
    assert build_encoder(settings, CPU).identity["decode"] == "gpu"
    assert "decodes on the CPU here" in caplog.text


def test_devices():
    assert pick_device("cpu") == CPU
    assert pick_device("auto").type in ("cpu", "cuda")
    with pytest.raises(ConfigError, match="there is no 'cuda:99'"):
        pick_device("cuda:99")


# The encoders hog and pixels.


def image_of(values: np.ndarray) -> Image.Image:
    return Image.fromarray(values.astype(np.uint8))


def features(settings: EncoderSettings, image: Image.Image) -> torch.Tensor:
    encoder = build_encoder(settings, CPU)
    return encoder.encode(encoder.preprocess(image)[None])[0]


def test_pixels_are_the_image():
    values = np.arange(4 * 4 * 3).reshape(4, 4, 3)
    settings = EncoderSettings("pixels", image_size=4)
    found = features(settings, image_of(values))
    assert torch.allclose(found, torch.from_numpy(values / 255).float().reshape(-1))
    unit = features(replace(settings, normalize=True), image_of(values))
    assert torch.allclose(unit, found / found.norm(), atol=1e-6)


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


def test_hog_refuses_images_smaller_than_a_block():
    with pytest.raises(ConfigError, match="16 pixels or more, got 8"):
        build_encoder(EncoderSettings("hog", image_size=8), CPU)


# Published weights: found without a network, or an error that says how to get them.


@pytest.mark.slow
def test_the_message_says_what_to_fetch_and_where_to_put_it(offline):
    message = refusal(EncoderSettings())
    assert "open_clip ViT-B-16, openai (about 598 MB)" in message
    assert "HF_HUB_OFFLINE forbids" in message
    assert (
        "fetch https://huggingface.co/timm/vit_base_patch16_clip_224.openai/resolve/"
        "main/open_clip_model.safetensors" in message
    )
    assert "ggeur.encoder.pretrained FILE" in message


def test_a_failed_download_is_announced_and_explained(
    tiny, bare_machine, monkeypatch, caplog
):
    url = "https://nowhere.example/weights.pt"
    monkeypatch.setitem(registry._PRETRAINED, tiny, {"ours": {"url": url}})
    caplog.set_level(logging.INFO, "federatedscope_ggeur")
    message = refusal(EncoderSettings("open_clip", tiny, "ours"))
    assert f"weights of open_clip {tiny}, ours, about 0 MB: {url}" in caplog.text
    assert f"could not be downloaded from {url}: " in message
    assert "no network for nowhere.example" in message
    assert f"fetch {url}, copy the file" in message
    assert message.endswith("Or try it without weights: ggeur.encoder.name hog")


def test_weights_of_the_hub_are_found_without_a_network(tiny, offline, monkeypatch):
    tag = {"url": "", "hf_hub": "ours/tiny/", "mean": (0.5, 0.5, 0.5)}
    monkeypatch.setitem(registry._PRETRAINED, tiny, {"ours": tag})
    settings = EncoderSettings("open_clip", tiny, "ours")
    assert "HF_HUB_OFFLINE" in refusal(settings)
    model = open_clip.create_model(tiny).eval()
    folder = offline / "hub" / "models--ours--tiny"  # as the hub's client has it
    for place in ("refs", "snapshots/0123abc"):
        (folder / place).mkdir(parents=True)
    (folder / "refs" / "main").write_text("0123abc")
    path = folder / "snapshots" / "0123abc" / "open_clip_pytorch_model.bin"
    torch.save(model.state_dict(), path)
    encoder = build_encoder(settings, CPU)
    image = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(encoder.encode(image), model.encode_image(image))
    assert "[0.5, 0.5, 0.5]" in encoder.identity["preprocess"]


def test_weights_of_an_url_are_used_only_if_whole(tiny, offline, monkeypatch, caplog):
    model = open_clip.create_model(tiny)
    folder = offline / ".cache" / "clip"
    folder.mkdir(parents=True)
    whole = folder / "whole.pt"
    torch.save(model.state_dict(), whole)
    path = whole.rename(folder / f"ours-{sha256_file(whole)[:8]}.pt")
    url = f"https://github.com/mlfoundations/open_clip/{path.name}"
    monkeypatch.setitem(registry._PRETRAINED, tiny, {"ours": {"url": url}})
    settings = EncoderSettings("open_clip", tiny, "ours")
    assert build_encoder(settings, CPU).identity["weights"] == sha256_file(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert f"fetch {url}" in refusal(settings)
    assert "is damaged" in caplog.text
