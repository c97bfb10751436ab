"""Means of prompts against plain numpy; the file that a user may bring."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import open_clip
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.nn.functional import normalize

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import EncoderSettings, read_embeddings_folder
from federatedscope_ggeur.data.cache import read_tensors
from federatedscope_ggeur.data.folder import is_text_file
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.extras.text.keys import TEMPLATES
from federatedscope_ggeur.extras.text.load import (
    load_text,
    mean_features,
    read_text_file,
    text_key,
)
from federatedscope_ggeur.extras.text.templates import IMAGENET80, expand, fill
from federatedscope_ggeur.extras.text.tower import TextTower, TokenTree


def test_a_class_is_the_mean_of_its_unit_prompts_made_unit():
    each = np.random.default_rng(0).normal(size=(3, 5, 4))
    units = each / np.sqrt((each**2).sum(axis=2, keepdims=True))
    means = units.sum(axis=1) / 5
    expected = means / np.sqrt((means**2).sum(axis=1, keepdims=True))
    found = mean_features(torch.from_numpy(each))
    assert found.dtype == torch.float32
    assert np.allclose(found.numpy(), expected, atol=1e-7)


def test_a_file_of_ones_own(tmp_path):
    rows = np.random.default_rng(1).normal(size=(3, 4))
    np.savez(tmp_path / "text.npz", features=rows, logit_scale=50.0)
    found = read_text_file(tmp_path / "text.npz", 3, 4)
    assert found.scale == 50
    assert np.allclose(found.features.norm(dim=1), 1)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.allclose(found.features, unit, atol=1e-7)
    np.savez(tmp_path / "text.npz", features=2 * rows, logit_scale=50.0)
    assert read_text_file(tmp_path / "text.npz", 3, 4).key == found.key
    np.savez(tmp_path / "text.npz", features=rows, logit_scale=51.0)
    assert read_text_file(tmp_path / "text.npz", 3, 4).key != found.key


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"features": np.ones((2, 4)), "logit_scale": 1.0}, "3 classes and D = 4"),
        ({"features": np.ones((3, 4))}, "logit_scale"),
        ({"features": np.zeros((3, 4)), "logit_scale": 1.0}, "row of zeros"),
        ({"features": np.full((3, 4), np.nan), "logit_scale": 1.0}, "NaN"),
        ({"features": np.ones((3, 4)), "logit_scale": 0.0}, "above 0"),
        ({"features": np.ones((3, 4)), "logit_scale": np.inf}, "at most 1e\\+06"),
        ({"features": np.array([[{}]] * 3), "logit_scale": 1.0}, "cannot be read"),
    ],
    ids=str,
)
def test_files_that_cannot_be_used(tmp_path, arrays, problem):
    np.savez(tmp_path / "text.npz", **arrays)
    with pytest.raises(DataError, match=problem):
        read_text_file(tmp_path / "text.npz", 3, 4)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_text_file(tmp_path / "text.npz", 3, 4)


def test_text_is_no_domain_but_a_domain_may_be_called_so(tmp_path):
    rows = {"features": np.eye(4), "labels": np.array([0, 0, 1, 1])}
    np.savez(tmp_path / "art.npz", **rows)
    np.savez(tmp_path / "text.npz", features=np.eye(2, 4), logit_scale=100.0)
    splits = [0.5, 0.0, 0.5]
    assert is_text_file(tmp_path / "text.npz")
    domains = read_embeddings_folder(tmp_path, splits, 0).domains
    assert [domain.name for domain in domains] == ["art"]
    np.savez(tmp_path / "text.npz", **rows)
    assert not is_text_file(tmp_path / "text.npz")
    domains = read_embeddings_folder(tmp_path, splits, 0).domains
    assert [domain.name for domain in domains] == ["art", "text"]


# Text features in the cache, with and without the weights.
#
# Tests of extras/text/load.py.


NAMES, CACHED_TEMPLATES = ("cat", "alarm_clock", "dog"), ["one", "a drawing of a {}."]


def files(encoding) -> list:
    from pathlib import Path

    return sorted(Path(encoding.cache).glob("text-*.safetensors"))


@pytest.mark.slow
def test_the_file_holds_what_the_features_are_of(encoding, tower):
    made = load_text(NAMES, CACHED_TEMPLATES, encoding)
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
def test_the_image_encoders_identity_is_the_key(encoding, loaded):
    made = load_text(NAMES, CACHED_TEMPLATES, encoding, loaded[1].identity)
    assert load_text(NAMES, CACHED_TEMPLATES, encoding).found.key == made.found.key
    other = {**loaded[1].identity, "weights": "others"}
    with pytest.raises(ConfigError, match="but another model embedded"):
        load_text(NAMES, CACHED_TEMPLATES, encoding, other)


@pytest.mark.parametrize("known", [True, False], ids=["identity", "settings"])
def test_without_weights_the_cache_is_enough(encoding, tmp_path, known):
    model = open_clip.create_model(encoding.encoder.model)
    file = tmp_path / "clip.safetensors"
    save_file({k: t.contiguous() for k, t in model.state_dict().items()}, str(file))
    settings = EncoderSettings(
        "open_clip", encoding.encoder.model, str(file), quick_gelu="without"
    )
    local = replace(encoding, encoder=settings)
    made = load_text(NAMES, CACHED_TEMPLATES, local)
    header = read_tensors(made.path)[1]
    file.unlink()
    identity = header["identity"] if known else None
    again = load_text(NAMES, CACHED_TEMPLATES, local, identity)
    assert again.prompts == 0
    assert torch.equal(again.found.features, made.found.features)
    with pytest.raises(ConfigError, match="there is no file"):
        load_text(("cat",), CACHED_TEMPLATES, local, identity)


@pytest.mark.slow
def test_a_damaged_file_is_made_again(encoding, caplog):
    made = load_text(NAMES, CACHED_TEMPLATES, encoding)
    made.path.write_bytes(made.path.read_bytes()[:-9])
    again = load_text(NAMES, CACHED_TEMPLATES, encoding)
    assert "is damaged" in caplog.text
    assert again.prompts == 6
    assert torch.equal(load_file(again.path)["features"], made.found.features)
    assert files(encoding) == [made.path]


def test_an_encoder_without_a_text_side(encoding):
    hog = replace(encoding, encoder=EncoderSettings("hog"))
    with pytest.raises(ConfigError, match="'hog' has no text side"):
        load_text(NAMES, CACHED_TEMPLATES, hog)


# Templates: how many, which, what a name becomes, and what the key takes.
#
# Tests of extras/text/keys.py.


#: Of the templates with a line feed between two.
DIGEST = "4f976686fb651bb5803d4689dcd849f75efe0ef19a3c801355bc9a6f03c8a5af"


def test_the_eighty_are_openais():
    assert len(IMAGENET80) == len(set(IMAGENET80)) == 80
    assert hashlib.sha256("\n".join(IMAGENET80).encode()).hexdigest() == DIGEST
    theirs = [make("{}") for make in open_clip.OPENAI_IMAGENET_TEMPLATES]
    assert list(IMAGENET80) == theirs


def test_lists_expand_in_place_and_nothing_stands_twice():
    assert expand(["one"]) == ("a photo of a {}.",)
    assert expand(["{}!", "imagenet80", "one"])[:2] == ("{}!", IMAGENET80[0])
    assert len(expand(["imagenet80", "one"])) == 80  # "one" is among them


def test_underscores_in_names_are_spaces():
    assert fill("a photo of a {}.", "alarm_clock") == "a photo of a alarm clock."


def test_fedtpgs_config_takes_bare_names_as_its_release_does():
    templates = load_config(find_config("fedtpg_cifar100.yaml")).ggeur.text.templates
    assert [fill(t, "sea_lion") for t in expand(templates)] == ["sea lion"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (["one"], ""),
        (("imagenet80", "a {} in the snow"), ""),
        ([], "1 to 1000"),
        ("one", "must be a list"),
        (["two"], "neither one of one, imagenet80"),
        (["{} {}"], "one {}"),
        ([3], "texts"),
        (["{}" + 300 * "x"], "at most 300"),
        (["one"] * 1001, "1 to 1000"),
    ],
)
def test_what_the_key_takes(value, problem):
    found = TEMPLATES.rule(value)
    assert problem in found
    assert bool(found) == bool(problem)


# The text tower against open_clip's own `encode_text`, and golden numbers.


TEXTS = [
    "a photo of a cat.",
    "a photo of a traffic light.",
    "graffiti of a dog.",
    "a photo of a cat.",
    "itap of my yo-yo, in the rain of 1987.",
]


def by_open_clip(loaded, texts) -> torch.Tensor:
    """Without a cut: all 77 tokens of each."""
    made = loaded[1].both_sides
    with torch.no_grad():
        return made.model.encode_text(open_clip.get_tokenizer(made.name)(texts))


@pytest.mark.slow
def test_cut_prompts_that_share_beginnings_give_what_whole_ones_give(tower, loaded):
    expected = by_open_clip(loaded, TEXTS)
    for size in (1, 2, 5):
        assert torch.allclose(tower.features(TEXTS, size), expected, atol=1e-5)


def test_seven_texts_are_rows_of_a_hundred(tower):
    names = [f"a photo of a {word} {i}." for i in range(20) for word in "abcde"]
    many, few = tower.features(names, 100), tower.features(names[:7], 100)
    assert torch.allclose(normalize(few), normalize(many[:7]), atol=1e-6)


def test_soft_prompts_made_of_token_embeddings_are_the_text(tower, loaded):
    """Rows of embeddings in place of the tokens' own: what learnt prompts are."""
    text = "X X X X cat."
    tree = TokenTree.of(tower.tokens([text, "X X X X red dog."]))
    soft = tower.embed(tree.tokens).clone().requires_grad_(True)
    found = tower.encode(soft, tree)
    assert torch.allclose(found[:1].detach(), by_open_clip(loaded, [text]), atol=1e-6)
    found.sum().backward()
    assert soft.grad.abs().sum() > 0


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_cut_as_clip_does(tower, loaded):
    text = "word " * 200
    assert len(tower.tokens([text])[0]) == tower.context == 77
    expected = by_open_clip(loaded, [text])
    assert torch.allclose(tower.features([text], 1), expected, atol=1e-5)


def test_other_text_sides_are_refused(tower, loaded):
    model = loaded[1].both_sides.model
    names = (
        "token_embedding", "positional_embedding", "transformer", "ln_final",
        "text_projection",
    )  # fmt: skip
    parts = {name: getattr(model, name) for name in names}
    for change in ({"attn_mask": None}, {}, {"attn_mask": 1, "cls_emb": 1}):
        with pytest.raises(ConfigError, match="not a causal CLIP transformer"):
            TextTower(SimpleNamespace(**parts, **change), len, 1.0)
    side = SimpleNamespace(**parts, attn_mask=1, text_pool_type="last")
    with pytest.raises(ConfigError, match="by 'last'"):
        TextTower(side, len, 1.0)
    assert tower.scale == pytest.approx(1 / 0.07)


# Trees of tokens, against a plain list of beginnings.


texts = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1)


@given(texts)
def test_nodes_are_the_distinct_beginnings(found):
    tree = TokenTree.of(found)
    beginnings = {tuple(t[: i + 1]) for t in found for i in range(len(t))}
    assert len(tree.tokens) == len(beginnings)
    for text, end in zip(found, tree.ends.tolist()):
        # Who the last token attends to, by position, is the text itself.
        seen = torch.nonzero(tree.mask[end] == 0).flatten()
        seen = seen[tree.positions[seen].argsort()]
        assert tree.tokens[seen].tolist() == text
        assert tree.positions[seen].tolist() == list(range(len(text)))
    assert torch.isinf(tree.mask[tree.mask != 0]).all()
