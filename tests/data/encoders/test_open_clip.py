"""The encoder open_clip: features, identity, weights files.

Tests of data/encoders/open_clip.py.
"""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from hostile_pickles import Runs
from open_clip import pretrained as registry
from pictures import refusal
from PIL import Image
from safetensors.torch import save_file

from federatedscope_ggeur.data import EncoderSettings, build_encoder
from federatedscope_ggeur.downloads import sha256_file
from federatedscope_ggeur.errors import ConfigError

CPU = torch.device("cpu")
OLD_TORCH = torch.__version__ < "2"


@pytest.fixture
def settings(tiny) -> EncoderSettings:
    return EncoderSettings("open_clip", tiny, "none")


@pytest.fixture
def model(tiny):
    torch.manual_seed(3)
    return open_clip.create_model(tiny).eval()


def some_image() -> Image.Image:
    values = np.random.default_rng(1).integers(0, 255, (50, 70, 3))
    return Image.fromarray(values.astype(np.uint8))


def features(settings: EncoderSettings) -> torch.Tensor:
    encoder = build_encoder(settings, CPU)
    return encoder.encode(encoder.preprocess(some_image())[None])[0]


def saved(model, path: Path) -> str:
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if path.suffix == ".safetensors":
        save_file(state, str(path))
    else:
        torch.save(state, path)
    return str(path)


def of_file(settings: EncoderSettings, file: str | Path) -> EncoderSettings:
    return replace(settings, pretrained=str(file), quick_gelu="without")


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_features_are_those_of_encode_image(settings, model, tmp_path, suffix):
    file = saved(model, tmp_path / f"clip{suffix}")
    local = of_file(settings, file)
    found = features(local)
    _, _, preprocess = open_clip.create_model_and_transforms(settings.model)
    with torch.no_grad():
        expected = model.encode_image(preprocess(some_image())[None])[0]
    assert torch.allclose(found, expected, atol=1e-6)
    assert found.dtype == torch.float32
    unit = features(replace(local, normalize=True))
    assert torch.allclose(unit, expected / expected.norm(), atol=1e-6)


def test_everything_that_changes_features_changes_the_identity(
    settings, model, tmp_path
):
    file = saved(model, tmp_path / "clip.pt")
    with torch.no_grad():
        model.visual.proj += 1e-3
    other = saved(model, tmp_path / "other.pt")
    local = of_file(settings, file)
    variants = [
        settings,
        replace(settings, model=f"{settings.model}-quickgelu"),
        replace(settings, normalize=True),
        *([] if OLD_TORCH else [replace(settings, precision="bf16")]),
        local,
        replace(local, pretrained=other),
        replace(local, quick_gelu="with"),
    ]
    names = [build_encoder(variant, CPU).name for variant in variants]
    assert len({name[-12:] for name in names}) == len(variants)


def test_the_preprocessing_beside_a_file_is_used(settings, model, tmp_path):
    file = saved(model, tmp_path / "clip.pt")
    plain = of_file(settings, file)
    before = build_encoder(plain, CPU)
    (tmp_path / "open_clip_config.json").write_text(
        '{"model_cfg": {"quick_gelu": false},'
        ' "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "resize_mode": "squash"}}'
    )
    after = build_encoder(replace(plain, quick_gelu="auto"), CPU)
    assert before.identity["preprocess"] != after.identity["preprocess"]
    assert "squash" in after.identity["preprocess"]


@pytest.mark.skipif(OLD_TORCH, reason="torch < 2 lacks layers in bf16")
def test_low_precision_is_close(settings):
    exact = features(settings)
    rounded = features(replace(settings, precision="bf16"))
    assert not torch.equal(exact, rounded)
    assert torch.nn.functional.cosine_similarity(exact, rounded, dim=0) > 0.999


@pytest.mark.skipif(not OLD_TORCH, reason="this release of torch has all layers")
def test_layers_without_low_precision_are_refused(settings):
    with pytest.raises(ConfigError, match="cannot compute in bf16 on cpu with torch"):
        features(replace(settings, precision="bf16"))


def test_fp16_needs_a_gpu(settings):
    with pytest.raises(ConfigError, match="fp16 needs a GPU"):
        features(replace(settings, precision="fp16"))


def test_a_file_that_runs_a_program_is_refused_unread(settings, tmp_path):
    bomb, file = tmp_path / "exploded", tmp_path / "clip.pt"
    torch.save({"weights": Runs(bomb)}, file)
    local = of_file(settings, file)
    assert "could run any program" in refusal(local)
    file.write_bytes(pickle.dumps(Runs(bomb), protocol=2))
    refusal(local)
    assert not bomb.exists()


def test_files_that_are_no_weights_of_the_model(settings, model, tmp_path):
    cut = Path(saved(model, tmp_path / "cut.safetensors"))
    cut.write_bytes(cut.read_bytes()[:-50])
    torch.save({"weight": torch.ones(3)}, tmp_path / "other.pt")
    (tmp_path / "clip.npz").write_bytes(b"")
    (tmp_path / "page.pt").write_text("<html>")
    for name, said in {
        "cut.safetensors": "cannot read the weights file",
        "page.pt": "page.pt': torch.save did not write it, or it is not whole",
        "other.pt": f"cannot make the model {settings.model}",
        "absent.pt": "there is no file",
        "clip.npz": "name of a weights file must end",
    }.items():
        assert said in refusal(of_file(settings, tmp_path / name))


def test_unknown_models_and_tags_list_the_known_ones(settings):
    with pytest.raises(ConfigError, match=r"no model 'ViT-Z'; it has .*ViT-B-16"):
        build_encoder(replace(settings, model="ViT-Z"), CPU)
    unknown = EncoderSettings("open_clip", "ViT-B/16", "opanai")
    with pytest.raises(ConfigError, match=r"'opanai' is neither .* tags: openai"):
        build_encoder(unknown, CPU)


# Weights trained with one kind of GELU never run with the other.


URL = "https://openaipublic.azureedge.net/clip/models"


def chosen(model: str, weights: str, quick_gelu: str = "auto") -> EncoderSettings:
    return EncoderSettings("open_clip", model, weights, quick_gelu=quick_gelu)


def build(*words: str):
    return build_encoder(chosen(*words), CPU)


@pytest.fixture
def file(tiny, tmp_path) -> Path:
    """Weights of the tiny model about which nothing is known."""
    return Path(saved(open_clip.create_model(tiny), tmp_path / "clip.pt"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "weights", "trained"),
    [("ViT-B-16", "openai", "with"), ("ViT-B-16", "laion2b_s34b_b88k", "without")],
)
def test_published_weights_decide(offline, model, weights, trained):
    """They get as far as the missing weights, with the right setting for a file."""
    other = {"with": "without", "without": "with"}[trained]
    assert "leave it at auto" in refusal(chosen(model, weights, other))
    for name in (model, f"{model}-quickgelu"):
        message = refusal(chosen(name, weights))
        assert f"pretrained FILE ggeur.encoder.quick_gelu {trained}." in message


def test_a_file_of_unknown_training_asks_for_the_setting(tiny, file):
    assert "set ggeur.encoder.quick_gelu to 'with'" in refusal(chosen(tiny, str(file)))
    for model in (tiny, f"{tiny}-quickgelu"):
        for said, wanted in (("with", True), ("without", False)):
            assert build(model, str(file), said).identity["quick_gelu"] is wanted
    assert build(f"{tiny}-quickgelu", str(file)).identity["quick_gelu"] is True


def named(file, trained, monkeypatch):
    return file.rename(file.with_name("vit-quickgelu-ours.pt"))


def described(file, trained, monkeypatch):
    text = f'{{"model_cfg": {{"quick_gelu": {str(trained).lower()}}}}}'
    file.with_name("open_clip_config.json").write_text(text)
    return file


def published(file, trained, monkeypatch):
    url = f"https://github.com/mlfoundations/open_clip/ours-{sha256_file(file)[:8]}.pt"
    content = {"url": url, "quick_gelu": trained}
    monkeypatch.setitem(registry._PRETRAINED, "some model", {"ours": content})
    return file


@pytest.mark.parametrize(
    ("tell", "trained"),
    [(named, True), *product((described, published), (True, False))],
)
def test_a_file_s_weights_decide(tiny, file, tell, trained, monkeypatch, tmp_path):
    """Its name, the config beside it, or the hash of a published file tells. Where it
    lies is no part of its identity."""
    path = tell(file, trained, monkeypatch)
    plain = build(tiny, str(path))
    assert plain.identity["quick_gelu"] is trained
    moved = shutil.copytree(tmp_path, tmp_path.with_suffix(".moved")) / path.name
    twin = build(f"{tiny}-quickgelu", str(moved))
    assert twin.identity == plain.identity
    image = torch.rand(1, 3, 32, 32)
    assert torch.equal(twin.encode(image), plain.encode(image))


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
    assert "It is not run" in refusal(chosen(tiny, str(script), "with"))
    url = f"{URL}/{sha256_file(script)}/ViT-tiny.pt"
    content = {"url": url, "quick_gelu": True}
    monkeypatch.setitem(registry._PRETRAINED, tiny, {"openai": content})
    image = torch.rand(2, 3, 32, 32)
    found = build(tiny, str(script)).encode(image)
    assert torch.allclose(
        found, build(tiny, str(file), "with").encode(image), atol=1e-6
    )
