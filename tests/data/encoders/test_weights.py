"""Published weights: found without a network, or an error that says how to get them."""

from __future__ import annotations

import logging
from pathlib import Path

import open_clip
import pytest
import torch
from open_clip import pretrained as registry

from federatedscope_ggeur.data import EncoderSettings, build_encoder
from federatedscope_ggeur.downloads import sha256_file
from federatedscope_ggeur.errors import ConfigError

CPU = torch.device("cpu")


def refusal(settings: EncoderSettings) -> str:
    with pytest.raises(ConfigError) as caught:
        build_encoder(settings, CPU)
    return str(caught.value)


def hub_file(home: Path, repo: str, name: str) -> Path:
    """Where a downloaded file of the Hugging Face hub lies."""
    folder = home / "hub" / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0123abc")
    path = folder / "snapshots" / "0123abc" / name
    path.parent.mkdir(parents=True)
    return path


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
    path = hub_file(offline, "ours/tiny", "open_clip_pytorch_model.bin")
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
