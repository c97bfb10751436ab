"""Weights trained with one kind of GELU never run with the other."""

from __future__ import annotations

from pathlib import Path

import open_clip
import pytest
import torch
from open_clip import pretrained as registry

from federatedscope_ggeur.data import EncoderSettings, build_encoder
from federatedscope_ggeur.downloads import sha256_file
from federatedscope_ggeur.errors import ConfigError

CPU = torch.device("cpu")
URL = "https://openaipublic.azureedge.net/clip/models"


def build(model: str, weights: str, quick_gelu: str = "auto"):
    settings = EncoderSettings("open_clip", model, weights, quick_gelu=quick_gelu)
    return build_encoder(settings, CPU)


def refusal(model: str, weights: str, quick_gelu: str = "auto") -> str:
    with pytest.raises(ConfigError) as caught:
        build(model, weights, quick_gelu)
    return str(caught.value)


@pytest.fixture
def file(tiny, tmp_path) -> Path:
    """Weights of the tiny model about which nothing is known."""
    path = tmp_path / "clip.pt"
    torch.save(open_clip.create_model(tiny).state_dict(), path)
    return path


def publish(monkeypatch, model: str, tag: str, **content) -> None:
    monkeypatch.setitem(registry._PRETRAINED, model, {tag: {"url": "", **content}})


def test_published_weights_and_model_must_agree(offline):
    assert "take the model ViT-B-32-quickgelu" in refusal("ViT-B-32", "laion400m_e32")
    message = refusal("ViT-B-16-quickgelu", "laion2b_s34b_b88k")
    assert "take the model ViT-B-16" in message
    assert "leave it at auto" in refusal("ViT-B-16", "openai", "without")
    assert "leave it at auto" in refusal("ViT-B-16", "laion2b_s34b_b88k", "with")


@pytest.mark.slow
def test_openai_weights_need_no_suffix(offline):
    """They get as far as the missing weights, with the right setting for a file."""
    for model in ("ViT-B-16", "ViT-B-16-quickgelu"):
        message = refusal(model, "openai")
        assert "ggeur.encoder.pretrained FILE ggeur.encoder.quick_gelu with" in message


def test_a_file_of_unknown_training_asks_for_the_setting(tiny, file):
    assert "set ggeur.encoder.quick_gelu to 'with'" in refusal(tiny, str(file))
    assert build(tiny, str(file), "with").identity["quick_gelu"] is True
    assert build(tiny, str(file), "without").identity["quick_gelu"] is False
    assert build(f"{tiny}-quickgelu", str(file)).identity["quick_gelu"] is True
    message = refusal(f"{tiny}-quickgelu", str(file), "without")
    assert f"take the model {tiny}" in message


def test_the_name_of_a_file_may_tell(tiny, file):
    named = file.rename(file.with_name("vit-quickgelu-ours.pt"))
    assert f"take the model {tiny}-quickgelu" in refusal(tiny, str(named))
    assert build(f"{tiny}-quickgelu", str(named)).identity["quick_gelu"] is True


@pytest.mark.parametrize("trained", [True, False])
def test_the_config_beside_a_file_tells(tiny, file, trained):
    text = f'{{"model_cfg": {{"quick_gelu": {str(trained).lower()}}}}}'
    file.with_name("open_clip_config.json").write_text(text)
    right, wrong = f"{tiny}-quickgelu", tiny
    if not trained:
        right, wrong = wrong, right
    assert build(right, str(file)).identity["quick_gelu"] is trained
    assert f"take the model {right}" in refusal(wrong, str(file))


def test_the_hash_of_a_published_file_tells(tiny, file, monkeypatch):
    digits = sha256_file(file)[:8]
    url = f"https://github.com/mlfoundations/open_clip/ours-{digits}.pt"
    publish(monkeypatch, tiny, "ours", url=url, quick_gelu=False)
    assert build(tiny, str(file)).identity["quick_gelu"] is False
    assert f"take the model {tiny}" in refusal(f"{tiny}-quickgelu", str(file))
    publish(monkeypatch, tiny, "ours", url=url, quick_gelu=True)
    assert f"take the model {tiny}-quickgelu" in refusal(tiny, str(file))


def test_the_activations_give_different_features(tiny, file):
    image = torch.rand(1, 3, 32, 32)
    with_it, without = (
        build(tiny, str(file), said).encode(image) for said in ("with", "without")
    )
    assert not torch.allclose(with_it, without, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # tracing is deprecated, OpenAI's files stay
def test_of_torchscript_files_only_openais_are_run(tiny, file, monkeypatch):
    model = open_clip.create_model(tiny, str(file), force_quick_gelu=True).eval()
    example = torch.rand(1, 3, 32, 32), torch.zeros(1, 8, dtype=torch.long)
    traced = torch.jit.trace(model, example, check_trace=False)
    script = file.with_name("ViT-tiny.pt")
    traced.save(str(script))
    message = refusal(tiny, str(script), "with")
    assert "It is not run" in message
    url = f"{URL}/{sha256_file(script)}/ViT-tiny.pt"
    publish(monkeypatch, tiny, "openai", url=url, quick_gelu=True)
    image = torch.rand(2, 3, 32, 32)
    found = build(tiny, str(script)).encode(image)
    assert torch.allclose(
        found, build(tiny, str(file), "with").encode(image), atol=1e-6
    )
