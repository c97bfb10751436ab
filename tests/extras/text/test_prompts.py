"""Learnt prompts: gradients against finite differences, own classes, what is left.

Tests of extras/text/base.py.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import open_clip
import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text import prompts as prompted
from federatedscope_ggeur.extras.text.adapter import AdapterHead
from federatedscope_ggeur.extras.text.base import CosineHead, TextModelSettings
from federatedscope_ggeur.extras.text.classes import ClassTexts
from federatedscope_ggeur.extras.text.generator import ContextGenerator
from federatedscope_ggeur.extras.text.keys import TEXT_MODELS
from federatedscope_ggeur.extras.text.prompts import PromptedClasses
from federatedscope_ggeur.extras.text.tower import TextTower
from federatedscope_ggeur.federation.exchanges.training.fit import fit
from federatedscope_ggeur.federation.optimizers import OptimizerSettings
from federatedscope_ggeur.federation.settings import TrainingSettings
from federatedscope_ggeur.models import load_vector, num_parameters, recast, to_vector

NAMES, D, VECTORS = ("cat", "traffic_light", "dog", "yo-yo"), 16, 3


@pytest.fixture(scope="module")
def prompt_tower(tmp_path_factory) -> TextTower:
    """In float64, 16 wide."""
    from pictures import add_narrow_clip

    model = add_narrow_clip(tmp_path_factory.mktemp("model"))
    torch.manual_seed(0)
    clip = open_clip.create_model(model).eval().requires_grad_(False).double()
    return TextTower(clip, open_clip.get_tokenizer(model), 20.0)


@pytest.fixture
def texts(prompt_tower) -> ClassTexts:
    rows = torch.randn(4, D, generator=torch.Generator().manual_seed(1)).double()
    prompts = PromptedClasses(prompt_tower, NAMES, VECTORS)
    return ClassTexts(F.normalize(rows, dim=1), prompt_tower.scale, prompts=prompts)


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


def test_features_are_those_of_whole_prompts(prompt_tower, texts):
    model = made("promptfl", texts)
    expected = by_open_clip(prompt_tower, model.source.context)
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


def test_the_spread_of_a_fresh_context(prompt_tower):
    prompts = PromptedClasses(prompt_tower, NAMES, 16)
    texts = ClassTexts(torch.zeros(4, D), 1.0, prompts=prompts)
    model = TEXT_MODELS["promptfl"].build(texts, n_ctx=16)
    vector = to_vector(model.reset(torch.Generator().manual_seed(0)))
    assert len(vector) == 16 * 16
    assert float(vector.std()) == pytest.approx(0.02, rel=0.1)


# Prompts with a context: the tower's own words in it give the words' text.


THREE_NAMES = ("cat", "traffic_light", "yo-yo")


def test_a_context_of_words_is_their_text(tower, monkeypatch):
    words = "a photo of a"
    tokens = tower.tokens([words])[0]
    context = tower.embed(torch.tensor(tokens[1:-1]))
    expected = tower.features(
        [f"{words} {n.replace('_', ' ')}." for n in THREE_NAMES], 3
    )
    prompts = PromptedClasses(tower, THREE_NAMES, len(context))
    found = prompts.encode(context, range(3))
    assert torch.allclose(found, expected, atol=1e-5)
    some = prompts.encode(context, [2, 0])
    assert torch.allclose(some, expected[[2, 0]], atol=1e-5)
    monkeypatch.setattr(prompted, "CLASSES", 2)
    apart = PromptedClasses(tower, THREE_NAMES, len(context)).encode(context, range(3))
    assert torch.allclose(apart, expected, atol=1e-5)
    assert prompts.width == 64
    assert copy.deepcopy(prompts) is prompts


def test_a_context_that_leaves_no_room_for_names(tower):
    with pytest.raises(ConfigError, match="more than the 77 tokens"):
        PromptedClasses(tower, THREE_NAMES, 74)


# FedCLIP's adapter and its losses, in plain numpy; a step of Adam.


C, ADAPTER_DIM, SCALE = 3, 5, 30.0
#: The published optimiser.
ADAM = {"betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.2}


def adapted_texts(classes=C, dim=ADAPTER_DIM) -> ClassTexts:
    rows = torch.randn(classes, dim, generator=torch.Generator().manual_seed(1))
    return ClassTexts(torch.nn.functional.normalize(rows, dim=1), SCALE)


def made_adapter() -> AdapterHead:
    model = TEXT_MODELS["fedclip"].build(adapted_texts())
    assert isinstance(model, AdapterHead)
    return model.reset(torch.Generator().manual_seed(2))


def adapter_batch(count=7):
    rng = np.random.default_rng(3)
    rows = 10 * rng.normal(size=(count, ADAPTER_DIM)).astype(np.float32)
    return torch.from_numpy(rows), torch.from_numpy(rng.integers(0, C, size=count))


def softmax(rows):
    rows = np.exp(rows - rows.max(axis=1, keepdims=True))
    return rows / rows.sum(axis=1, keepdims=True)


def adapted(model, rows):
    """x' as the paper has it."""
    w1, b1, w2, b2 = (p.detach().double().numpy() for p in model.parameters())
    attention = softmax(np.tanh(rows @ w1.T + b1) @ w2.T + b2)
    found = attention * rows
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def test_the_adapter_is_the_oracle():
    model, (x, _) = made_adapter(), adapter_batch()
    rows = adapted(model, x.double().numpy())
    logits = SCALE * rows @ adapted_texts().features.double().numpy().T
    assert np.allclose(model.represent(x).detach().numpy(), rows, atol=1e-6)
    assert np.allclose(model(x).detach().numpy(), logits, atol=1e-4)


def test_the_loss_is_the_oracle():
    model, (x, y) = made_adapter(), adapter_batch()
    rows, w = (
        adapted(model, x.double().numpy()),
        adapted_texts().features.double().numpy(),
    )
    pairs, own = SCALE * rows @ w[y].T, np.arange(len(y))
    of_images = -np.log(softmax(pairs)[own, own]).mean()
    of_texts = -np.log(softmax(pairs.T)[own, own]).mean()
    found = float(model.loss(model(x), y).detach())
    assert found == pytest.approx((of_images + of_texts) / 2, abs=1e-5)


def test_a_pair_alone_is_passed_over():
    x, y = adapter_batch(7)
    settings = TrainingSettings(OptimizerSettings("Adam", 0.1, ADAM), batch_size=3)
    model = made_adapter()
    assert fit(model, to_vector(model), x, y, settings, 0).steps == 2


def test_training_lowers_the_loss_over_pairs():
    x, y = adapter_batch(7)
    adam = OptimizerSettings("Adam", 0.01, ADAM)
    settings = TrainingSettings(adam, local_update_steps=20, batch_size=7)
    model = made_adapter()
    trained = model.at(fit(model, to_vector(model), x, y, settings, 0).params)
    before = made_adapter()
    assert trained.loss(trained(x), y) < before.loss(before(x), y)


def test_what_travels_is_the_adapter_alone_and_the_file_holds_the_text():
    model = TEXT_MODELS["fedclip"].build(adapted_texts(2, 512))
    assert num_parameters(model) == 2 * 512**2 + 2 * 512 == 525_312
    other = TEXT_MODELS["fedclip"].build(ClassTexts(torch.zeros(C, ADAPTER_DIM), 1.0))
    other.load_state_dict(made_adapter().state_dict())
    x = adapter_batch()[0]
    assert torch.equal(other(x), made_adapter()(x))
    load_vector(other, 0 * to_vector(other))
    assert torch.equal(other.texts, adapted_texts().features)
    with pytest.raises(ConfigError, match="AdapterHead has no last layer"):
        _ = other.classifier
    assert torch.equal(other.last_input(x), other.represent(x))


# FedTPG's network: its numbers, and what it makes, in plain numpy.


def made_generator(vectors=3, width=8, dim=12) -> ContextGenerator:
    torch.manual_seed(0)
    network = ContextGenerator(vectors, width, dim).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_()
    return network


def layer_norm(rows, norm):
    centred = rows - rows.mean(axis=1, keepdims=True)
    rows = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    return rows * norm.weight.detach().numpy() + norm.bias.detach().numpy()


def linear(rows, layer):
    return rows @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def test_the_numbers_of_the_published_size():
    assert num_parameters(ContextGenerator(4, 512, 512)) == 4_206_080


def test_the_context_is_the_oracle():
    network, texts = made_generator(), np.random.default_rng(1).normal(size=(5, 12))
    known = layer_norm(texts, network.norm_texts)
    queries = layer_norm(network.queries.detach().numpy(), network.norm_queries)
    query = linear(queries, network.query)
    key, value = linear(known, network.key), linear(known, network.value)
    heads = []
    for h in range(4):  # of two columns each
        own = slice(2 * h, 2 * h + 2)
        scores = query[:, own] @ key[:, own].T / math.sqrt(2)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        heads.append(shares @ value[:, own])
    seen = linear(np.concatenate(heads, axis=1), network.out)
    wide = linear(layer_norm(seen, network.norm), network.widen)
    content, gate = wide[:, :32], wide[:, 32:]
    erf = np.vectorize(math.erf)
    gelu = gate * (1 + erf(gate / math.sqrt(2))) / 2
    expected = seen + linear(content * gelu, network.narrow)
    found = network(torch.from_numpy(texts)).detach().numpy()
    assert np.allclose(found, expected, atol=1e-10)
