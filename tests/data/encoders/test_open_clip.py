"""The encoder open_clip: features, identity, weights files.

Tests of data/encoders/open_clip.py.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from federatedscope_ggeur.data import EncoderSettings, build_encoder
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


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_features_are_those_of_encode_image(settings, model, tmp_path, suffix):
    file = saved(model, tmp_path / f"clip{suffix}")
    found = features(replace(settings, pretrained=file, quick_gelu="without"))
    _, _, preprocess = open_clip.create_model_and_transforms(settings.model)
    with torch.no_grad():
        expected = model.encode_image(preprocess(some_image())[None])[0]
    assert torch.allclose(found, expected, atol=1e-6)
    assert found.dtype == torch.float32
    normalised = replace(
        settings, pretrained=file, quick_gelu="without", normalize=True
    )
    assert torch.allclose(features(normalised), expected / expected.norm(), atol=1e-6)


def test_random_weights_are_always_the_same(settings):
    torch.manual_seed(1)
    first = features(settings)
    torch.manual_seed(2)
    assert torch.equal(first, features(settings))
    names = {build_encoder(settings, CPU).name for _ in range(2)}
    assert len(names) == 1
    assert "random weights" in names.pop()


def test_everything_that_changes_features_changes_the_identity(
    settings, model, tmp_path
):
    file = saved(model, tmp_path / "clip.pt")
    with torch.no_grad():
        model.visual.proj += 1e-3
    other = saved(model, tmp_path / "other.pt")
    local = replace(settings, pretrained=file, quick_gelu="without")
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


def test_what_changes_no_feature_changes_no_identity(settings, model, tmp_path):
    file = saved(model, tmp_path / "clip.pt")
    moved = tmp_path / "moved.pt"
    moved.write_bytes(Path(file).read_bytes())
    first, second, third = (
        build_encoder(replace(settings, **changes), CPU).identity
        for changes in (
            {"pretrained": file, "quick_gelu": "with"},
            {"pretrained": str(moved), "quick_gelu": "with"},
            {
                "pretrained": file,
                "model": f"{settings.model}-quickgelu",
            },
        )
    )
    assert first == second == third


def test_the_preprocessing_beside_a_file_is_used(settings, model, tmp_path):
    file = saved(model, tmp_path / "clip.pt")
    plain = replace(settings, pretrained=file, quick_gelu="without")
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


class _Bomb:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_file_that_runs_a_program_is_refused_unread(settings, tmp_path):
    bomb, file = tmp_path / "exploded", tmp_path / "clip.pt"
    torch.save({"weights": _Bomb(bomb)}, file)
    local = replace(settings, pretrained=str(file), quick_gelu="without")
    with pytest.raises(ConfigError, match="could run any program"):
        build_encoder(local, CPU)
    assert not bomb.exists()
    with open(file, "wb") as handle:
        pickle.dump(_Bomb(bomb), handle, protocol=2)
    with pytest.raises(ConfigError):
        build_encoder(local, CPU)
    assert not bomb.exists()


def test_files_that_are_no_weights_of_the_model(settings, model, tmp_path):
    def refusal(file: Path) -> str:
        local = replace(settings, pretrained=str(file), quick_gelu="without")
        with pytest.raises(ConfigError) as caught:
            build_encoder(local, CPU)
        return str(caught.value)

    cut = Path(saved(model, tmp_path / "cut.safetensors"))
    cut.write_bytes(cut.read_bytes()[:-50])
    assert "cannot read the weights file" in refusal(cut)
    other = tmp_path / "other.pt"
    torch.save({"weight": torch.ones(3)}, other)
    assert f"cannot make the model {settings.model}" in refusal(other)
    assert "there is no file" in refusal(tmp_path / "absent.pt")
    table = tmp_path / "clip.npz"
    table.write_bytes(b"")
    assert "name of a weights file must end" in refusal(table)


def test_unknown_models_and_tags_list_the_known_ones(settings):
    with pytest.raises(ConfigError, match=r"no model 'ViT-Z'; it has .*ViT-B-16"):
        build_encoder(replace(settings, model="ViT-Z"), CPU)
    unknown = EncoderSettings("open_clip", "ViT-B/16", "opanai")
    with pytest.raises(ConfigError, match=r"'opanai' is neither .* tags: openai"):
        build_encoder(unknown, CPU)
