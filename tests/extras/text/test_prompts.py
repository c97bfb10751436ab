"""Learnt prompts: gradients against finite differences, own classes, what is left.

Tests of extras/text/base.py.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import open_clip
import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.base import CosineHead, TextModelSettings
from federatedscope_ggeur.extras.text.classes import ClassTexts
from federatedscope_ggeur.extras.text.keys import TEXT_MODELS
from federatedscope_ggeur.extras.text.prompts import PromptedClasses
from federatedscope_ggeur.extras.text.tower import TextTower
from federatedscope_ggeur.federation.exchanges.training.fit import fit
from federatedscope_ggeur.federation.settings import TrainingSettings
from federatedscope_ggeur.models import num_parameters, recast, to_vector

NAMES, D, VECTORS = ("cat", "traffic_light", "dog", "yo-yo"), 16, 3


@pytest.fixture(scope="module")
def tower(tmp_path_factory) -> TextTower:
    """In float64, 16 wide."""
    from pictures import add_narrow_clip

    model = add_narrow_clip(tmp_path_factory.mktemp("model"))
    torch.manual_seed(0)
    clip = open_clip.create_model(model).eval().requires_grad_(False).double()
    return TextTower(clip, open_clip.get_tokenizer(model), 20.0)


@pytest.fixture
def texts(tower) -> ClassTexts:
    rows = torch.randn(4, D, generator=torch.Generator().manual_seed(1)).double()
    prompts = PromptedClasses(tower, NAMES, VECTORS)
    return ClassTexts(F.normalize(rows, dim=1), tower.scale, prompts=prompts)


def made(kind, texts):
    model = TEXT_MODELS[kind].build(texts, n_ctx=VECTORS)
    return model.reset(torch.Generator().manual_seed(2)).double()


def batch(count=6):
    rows = torch.randn(count, D, generator=torch.Generator().manual_seed(3)).double()
    return rows, torch.arange(count) % 4


def by_open_clip(tower, context) -> torch.Tensor:
    """The unit features of ``ctx name .`` by the whole of `encode_text`, all 77
    tokens, with the context in the place of its words."""
    clip, prompts = tower._side, [f"X X X {n}." for n in ("cat", "traffic light")]
    tokens = tower._tokenize(prompts)
    x = clip.token_embedding(tokens)
    x[:, 1 : 1 + VECTORS] = context
    x = x + clip.positional_embedding
    x = clip.ln_final(clip.transformer(x, attn_mask=clip.attn_mask))
    x = x[torch.arange(2), tokens.argmax(dim=1)] @ clip.text_projection
    return F.normalize(x, dim=1)


def test_features_are_those_of_whole_prompts(tower, texts):
    model = made("promptfl", texts)
    expected = by_open_clip(tower, model.source.context)
    assert torch.allclose(model.class_features()[:2], expected, atol=1e-10)


@pytest.mark.parametrize("kind", ["promptfl", "fedtpg"])
def test_gradients_are_finite_differences(kind, texts):
    model, (x, y) = made(kind, texts), batch()
    model.loss(model(x), y).backward()
    found = torch.cat([p.grad.flatten() for p in model.parameters()])
    start, step = to_vector(model), 1e-5
    generator = torch.Generator().manual_seed(4)
    for i in torch.randperm(len(start), generator=generator)[:24].tolist():
        move = torch.zeros_like(start)
        move[i] = step
        with torch.no_grad():
            up, down = (model.at(start + sign * move)(x) for sign in (1, -1))
            slope = (model.loss(up, y) - model.loss(down, y)) / (2 * step)
        assert float(slope) == pytest.approx(float(found[i]), rel=1e-4, abs=1e-8)
    assert found.abs().max() > 1e-4


@pytest.mark.parametrize("kind", ["promptfl", "fedtpg"])
def test_what_is_left_gives_the_same_logits(kind, texts):
    model, (x, _) = made(kind, texts), batch()
    left = model.to_leave()
    assert isinstance(left, CosineHead)
    with torch.no_grad():
        assert torch.allclose(left(x.float()).double(), model(x), atol=1e-4)
    settings = TextModelSettings(kind, texts, (("n_ctx", VECTORS),))
    assert settings.leaves_another
    wanted = replace(settings, texts=None, left=True).build(D, 4)
    assert torch.equal(recast(model, to_vector(model), wanted), to_vector(left))
    with pytest.raises(ConfigError, match="need the text tower"):
        TextModelSettings(kind).build(D, 4)


def test_a_client_of_some_classes(texts):
    x, y = batch()
    for kind, own in (("promptfl", False), ("fedtpg", True)):
        model = made(kind, texts)
        whole = model(x)
        with model.of_client(torch.tensor([2, 0, 0, 5])):
            logits = model(x)
            assert bool(torch.isinf(logits[:, 1:3]).all()) == own
            some = y.clone() * 0
            loss = model.loss(logits, some)
            loss.backward()
            assert all(torch.isfinite(p.grad).all() for p in model.parameters())
        assert torch.equal(model(x), whole)
        with model.of_client(torch.zeros(4, dtype=torch.int64)):
            assert torch.equal(model(x), whole)


def test_copies_share_the_tower_and_training_is_of_the_context_alone(texts):
    model = (
        TEXT_MODELS["promptfl"]
        .build(replace(texts, features=texts.features.float()), n_ctx=VECTORS)
        .double()
    )
    assert copy.deepcopy(model)._texts.prompts is texts.prompts
    assert num_parameters(model) == VECTORS * 16
    x, y = batch()
    start = to_vector(model.reset(torch.Generator().manual_seed(0)))
    found = fit(model, start, x, y, TrainingSettings(), 0)
    assert found.steps == 1
    assert not torch.equal(found.params, start)
    assert model.last_input(x).shape == model.represent(x).shape
    with pytest.raises(ConfigError, match="no last layer"):
        _ = model.classifier


def test_cosine_heads_start_at_zero():
    head = CosineHead(D, 3).reset()
    assert not to_vector(head).any()
    assert head.last_input(torch.ones(2, D)).norm(dim=1).tolist() == pytest.approx(
        [1, 1]
    )
    with pytest.raises(ConfigError, match="no last layer"):
        _ = head.classifier


def test_the_spread_of_a_fresh_context(tower):
    prompts = PromptedClasses(tower, NAMES, 16)
    texts = ClassTexts(torch.zeros(4, D), 1.0, prompts=prompts)
    model = TEXT_MODELS["promptfl"].build(texts, n_ctx=16)
    vector = to_vector(model.reset(torch.Generator().manual_seed(0)))
    assert len(vector) == 16 * 16
    assert float(vector.std()) == pytest.approx(0.02, rel=0.1)
