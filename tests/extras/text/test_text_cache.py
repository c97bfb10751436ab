"""Text features in the cache, with and without the weights.

Tests of extras/text/load.py.
"""

from __future__ import annotations

from dataclasses import replace

import open_clip
import pytest
import torch
from safetensors.torch import load_file, save_file

from federatedscope_ggeur.data import EncoderSettings
from federatedscope_ggeur.data.cache import read_tensors
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.load import load_text, text_key

NAMES, TEMPLATES = ("cat", "alarm_clock", "dog"), ["one", "a drawing of a {}."]


def files(encoding) -> list:
    from pathlib import Path

    return sorted(Path(encoding.cache).glob("text-*.safetensors"))


@pytest.mark.slow
def test_the_file_holds_what_the_features_are_of(encoding, tower):
    made = load_text(NAMES, TEMPLATES, encoding)
    assert made.prompts == 6
    tensors, header = read_tensors(made.path)
    assert made.path.name == f"text-{made.found.key[:16]}.safetensors"
    assert torch.equal(tensors["features"], made.found.features)
    assert tensors["each"].dtype == torch.float16
    assert tensors["each"].shape == (3, 2, 16)
    assert header["names"] == list(NAMES)
    assert header["templates"] == ["a photo of a {}.", "a drawing of a {}."]
    assert header["logit_scale"] == tower.scale
    own = tower.features(["a photo of a alarm clock."], 1)[0]
    assert torch.allclose(tensors["each"][1, 0].float(), own, rtol=1e-3, atol=1e-3)
    key = text_key(header["identity"], NAMES, header["templates"])
    assert key == header["key"] == made.found.key


@pytest.mark.slow
def test_a_second_call_reads_and_other_names_or_templates_are_made(encoding):
    first = load_text(NAMES, TEMPLATES, encoding)
    again = load_text(NAMES, TEMPLATES, encoding)
    assert again.prompts == 0
    assert again.found.key == first.found.key
    assert torch.equal(again.found.features, first.found.features)
    renamed = load_text(("cat", "clock", "dog"), TEMPLATES, encoding)
    templates = load_text(NAMES, ["one"], encoding)
    assert renamed.prompts == 6
    assert templates.prompts == 3
    assert len({first.found.key, renamed.found.key, templates.found.key}) == 3
    kept = torch.equal(renamed.found.features[0], first.found.features[0])
    assert kept or torch.allclose(renamed.found.features[0], first.found.features[0])
    assert load_text(NAMES, TEMPLATES, encoding).prompts == 0


@pytest.mark.slow
def test_the_image_encoders_identity_is_the_key(encoding, loaded):
    made = load_text(NAMES, TEMPLATES, encoding, loaded[1].identity)
    assert load_text(NAMES, TEMPLATES, encoding).found.key == made.found.key
    other = {**loaded[1].identity, "weights": "others"}
    with pytest.raises(ConfigError, match="but another model embedded"):
        load_text(NAMES, TEMPLATES, encoding, other)


@pytest.mark.parametrize("known", [True, False], ids=["identity", "settings"])
def test_without_weights_the_cache_is_enough(encoding, tmp_path, known):
    model = open_clip.create_model(encoding.encoder.model)
    file = tmp_path / "clip.safetensors"
    save_file({k: t.contiguous() for k, t in model.state_dict().items()}, str(file))
    settings = EncoderSettings(
        "open_clip", encoding.encoder.model, str(file), quick_gelu="without"
    )
    local = replace(encoding, encoder=settings)
    made = load_text(NAMES, TEMPLATES, local)
    header = read_tensors(made.path)[1]
    file.unlink()
    identity = header["identity"] if known else None
    again = load_text(NAMES, TEMPLATES, local, identity)
    assert again.prompts == 0
    assert torch.equal(again.found.features, made.found.features)
    with pytest.raises(ConfigError, match="there is no file"):
        load_text(("cat",), TEMPLATES, local, identity)


@pytest.mark.slow
def test_a_damaged_file_is_made_again(encoding, caplog):
    made = load_text(NAMES, TEMPLATES, encoding)
    made.path.write_bytes(made.path.read_bytes()[:-9])
    again = load_text(NAMES, TEMPLATES, encoding)
    assert "is damaged" in caplog.text
    assert again.prompts == 6
    assert torch.equal(load_file(again.path)["features"], made.found.features)
    assert files(encoding) == [made.path]


def test_an_encoder_without_a_text_side(encoding):
    hog = replace(encoding, encoder=EncoderSettings("hog"))
    with pytest.raises(ConfigError, match="'hog' has no text side"):
        load_text(NAMES, TEMPLATES, hog)
