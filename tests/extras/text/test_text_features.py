"""Means of prompts against plain numpy; the file that a user may bring."""

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import open_clip
import pytest
import torch
from closed_form_oracle import softmax
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import EncoderSettings, read_embeddings_folder
from federatedscope_ggeur.data.cache import read_tensors
from federatedscope_ggeur.data.folder import is_text_file
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.extras.text import prompts as prompted
from federatedscope_ggeur.extras.text.adapter import AdapterHead
from federatedscope_ggeur.extras.text.base import CosineHead, TextModelSettings
from federatedscope_ggeur.extras.text.classes import ClassTexts
from federatedscope_ggeur.extras.text.generator import ContextGenerator
from federatedscope_ggeur.extras.text.keys import TEXT_MODELS, TextKeys
from federatedscope_ggeur.extras.text.load import (
    load_text,
    mean_features,
    read_text_file,
    text_key,
)
from federatedscope_ggeur.extras.text.prompts import PromptedClasses
from federatedscope_ggeur.extras.text.templates import IMAGENET80, expand, fill
from federatedscope_ggeur.extras.text.tower import TextTower, TokenTree
from federatedscope_ggeur.federation.exchanges.training.fit import fit
from federatedscope_ggeur.federation.optimizers import OptimizerSettings
from federatedscope_ggeur.federation.settings import TrainingSettings
from federatedscope_ggeur.models import load_vector, num_parameters, recast, to_vector


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
    found = read_text_file(tmp_path / "text.npz", "abc", 4)
    assert found.scale == 50
    assert np.allclose(found.features.norm(dim=1), 1)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.allclose(found.features, unit, atol=1e-7)
    np.savez(tmp_path / "text.npz", features=2 * rows, logit_scale=50.0)
    assert read_text_file(tmp_path / "text.npz", "abc", 4).key == found.key
    np.savez(tmp_path / "text.npz", features=rows, logit_scale=51.0)
    assert read_text_file(tmp_path / "text.npz", "abc", 4).key != found.key


def test_rows_of_text_may_be_named(tmp_path, caplog):
    path, rows = tmp_path / "text.npz", np.eye(3)
    np.savez(path, features=rows, logit_scale=1.0)
    assert torch.equal(read_text_file(path, ["1", "2", "10"], 3).features, torch.eye(3))
    assert "for the classes 1, 2, 10, in this order" in caplog.text
    caplog.clear()
    np.savez(path, features=rows, logit_scale=1.0, class_names=["1", "10", "2"])
    found = read_text_file(path, ["1", "2", "10"], 3)
    assert found.features.argmax(dim=1).tolist() == [0, 2, 1]
    with pytest.raises(DataError, match="the data have the classes"):
        read_text_file(path, ["1", "2", "3"], 3)
    np.savez(path, features=rows, logit_scale=1.0)
    (tmp_path / "class_names.txt").write_text("x\ny\nz\n")
    read_text_file(path, "xyz", 3)
    assert not caplog.text


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
        read_text_file(tmp_path / "text.npz", "abc", 4)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_text_file(tmp_path / "text.npz", "abc", 4)


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


def test_the_file_holds_what_the_features_are_of(encoding, tower):
    made = load_text(NAMES, CACHED_TEMPLATES, encoding)
    assert made.prompts == 6
    tensors, header = read_tensors(made.path)
    assert made.path.name == f"text-{made.text.key[:16]}.safetensors"
    assert torch.equal(tensors["features"], made.text.features)
    assert tensors["each"].dtype == torch.float16
    assert tensors["each"].shape == (3, 2, 16)
    assert header["names"] == list(NAMES)
    assert header["templates"] == ["a photo of a {}.", "a drawing of a {}."]
    assert header["logit_scale"] == tower.scale
    own = tower.features(["a photo of a alarm clock."], 1)[0]
    assert torch.allclose(tensors["each"][1, 0].float(), own, rtol=1e-3, atol=1e-3)
    key = text_key(header["identity"], NAMES, header["templates"])
    assert key == header["key"] == made.text.key


def test_the_image_encoders_identity_is_the_key(encoding, loaded):
    made = load_text(NAMES, CACHED_TEMPLATES, encoding, loaded[1].identity)
    assert load_text(NAMES, CACHED_TEMPLATES, encoding).text.key == made.text.key
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
    assert torch.equal(again.text.features, made.text.features)
    with pytest.raises(ConfigError, match="there is no file"):
        load_text(("cat",), CACHED_TEMPLATES, local, identity)


def test_a_damaged_file_is_made_again(encoding, caplog):
    made = load_text(NAMES, CACHED_TEMPLATES, encoding)
    made.path.write_bytes(made.path.read_bytes()[:-9])
    again = load_text(NAMES, CACHED_TEMPLATES, encoding)
    assert "is damaged" in caplog.text
    assert again.prompts == 6
    assert torch.equal(load_file(again.path)["features"], made.text.features)
    assert list(made.path.parent.glob("text-*.safetensors")) == [made.path]


def test_an_encoder_without_a_text_side(encoding):
    hog = replace(encoding, encoder=EncoderSettings("hog"))
    with pytest.raises(ConfigError, match="'hog' has no text side"):
        load_text(NAMES, CACHED_TEMPLATES, hog)


# Templates: how many, which, what a name becomes, and what the key takes.
#
# Tests of extras/text/keys.py.


def test_the_eighty_are_openais():
    assert len(IMAGENET80) == len(set(IMAGENET80)) == 80
    theirs = [make("{}") for make in open_clip.OPENAI_IMAGENET_TEMPLATES]
    assert list(IMAGENET80) == theirs


def test_lists_expand_in_place_and_nothing_stands_twice():
    assert expand(["one"]) == ("a photo of a {}.",)
    assert expand(["{}!", "imagenet80", "one"])[:2] == ("{}!", IMAGENET80[0])
    assert len(expand(["imagenet80", "one"])) == 80  # "one" is among them


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
    found = TextKeys.by_field()["templates"].rule(value)
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
    assert torch.allclose(F.normalize(few), F.normalize(many[:7]), atol=1e-6)


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


# Learnt prompts: gradients against finite differences, own classes, what is left.


PROMPT_NAMES, PROMPT_DIM, VECTORS = ("cat", "traffic_light", "dog", "yo-yo"), 16, 3


@pytest.fixture(scope="module")
def prompt_tower(tmp_path_factory) -> TextTower:
    """In float64, 16 wide."""
    from pictures import add_narrow_clip

    model = add_narrow_clip(tmp_path_factory.mktemp("model"))
    torch.manual_seed(0)
    clip = open_clip.create_model(model).eval().requires_grad_(False).double()
    return TextTower(clip, open_clip.get_tokenizer(model), 20.0)


@pytest.fixture
def prompted_texts(prompt_tower) -> ClassTexts:
    rows = F.normalize(drawn(1, 4, PROMPT_DIM).double(), dim=1)
    prompts = PromptedClasses(prompt_tower, PROMPT_NAMES, VECTORS)
    return ClassTexts(rows, prompt_tower.scale, prompts=prompts)


def made(kind, prompted_texts):
    model = TEXT_MODELS[kind].build(prompted_texts, n_ctx=VECTORS)
    return model.reset(torch.Generator().manual_seed(2)).double()


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def batch(count=6):
    return drawn(3, count, PROMPT_DIM).double(), torch.arange(count) % 4


def test_features_are_the_units_of_prompts_with_the_context(prompted_texts):
    model = made("promptfl", prompted_texts)
    encoded = prompted_texts.prompts.encode(model.source.context, range(4))
    expected = encoded / encoded.square().sum(dim=1, keepdim=True).sqrt()
    assert torch.allclose(model.class_features(), expected, atol=1e-10)


@pytest.mark.parametrize("kind", ["promptfl", "fedtpg"])
def test_gradients_are_finite_differences(kind, prompted_texts):
    model, (x, y) = made(kind, prompted_texts), batch()
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
def test_what_is_left_gives_the_same_logits(kind, prompted_texts):
    model, (x, _) = made(kind, prompted_texts), batch()
    left = model.to_leave()
    assert isinstance(left, CosineHead)
    with torch.no_grad():
        assert torch.allclose(left(x.float()).double(), model(x), atol=1e-4)
    settings = TextModelSettings(kind, prompted_texts, (("n_ctx", VECTORS),))
    assert settings.leaves_another
    wanted = replace(settings, texts=None, left=True).build(PROMPT_DIM, 4)
    assert torch.equal(recast(model, to_vector(model), wanted), to_vector(left))
    with pytest.raises(ConfigError, match="need the text tower"):
        TextModelSettings(kind).build(PROMPT_DIM, 4)


def test_a_client_of_some_classes(prompted_texts):
    x, y = batch()
    for kind, own in (("promptfl", False), ("fedtpg", True)):
        model = made(kind, prompted_texts)
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


def test_copies_share_the_tower_and_training_is_of_the_context_alone(prompted_texts):
    model = made("promptfl", prompted_texts)
    assert copy.deepcopy(model)._texts.prompts is prompted_texts.prompts
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
    head = CosineHead(PROMPT_DIM, 3).reset()
    assert not to_vector(head).any()
    lengths = head.last_input(torch.ones(2, PROMPT_DIM)).norm(dim=1)
    assert lengths.tolist() == pytest.approx([1, 1])
    with pytest.raises(ConfigError, match="no last layer"):
        _ = head.classifier


def test_the_spread_of_a_fresh_context(prompt_tower):
    prompts = PromptedClasses(prompt_tower, PROMPT_NAMES, 16)
    prompted_texts = ClassTexts(torch.zeros(4, PROMPT_DIM), 1.0, prompts=prompts)
    model = TEXT_MODELS["promptfl"].build(prompted_texts, n_ctx=16)
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
    return ClassTexts(F.normalize(drawn(1, classes, dim), dim=1), SCALE)


def made_adapter() -> AdapterHead:
    model = TEXT_MODELS["fedclip"].build(adapted_texts())
    assert isinstance(model, AdapterHead)
    return model.reset(torch.Generator().manual_seed(2))


def adapter_batch():
    rng = np.random.default_rng(3)
    rows = 10 * rng.normal(size=(7, ADAPTER_DIM)).astype(np.float32)
    return torch.from_numpy(rows), torch.from_numpy(rng.integers(0, C, size=7))


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
    rows = adapted(model, x.double().numpy())
    w = adapted_texts().features.double().numpy()
    pairs, own = SCALE * rows @ w[y].T, np.arange(len(y))
    of_images = -np.log(softmax(pairs)[own, own]).mean()
    of_texts = -np.log(softmax(pairs.T)[own, own]).mean()
    found = float(model.loss(model(x), y).detach())
    assert found == pytest.approx((of_images + of_texts) / 2, abs=1e-5)


def test_a_pair_alone_is_passed_over():
    x, y = adapter_batch()
    settings = TrainingSettings(OptimizerSettings("Adam", 0.1, ADAM), batch_size=3)
    model = made_adapter()
    assert fit(model, to_vector(model), x, y, settings, 0).steps == 2


def test_training_lowers_the_loss_over_pairs():
    x, y = adapter_batch()
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


def made_generator() -> ContextGenerator:
    torch.manual_seed(0)
    network = ContextGenerator(vectors=3, width=8, dim=12).double()
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
        heads.append(softmax(scores) @ value[:, own])
    seen = linear(np.concatenate(heads, axis=1), network.out)
    wide = linear(layer_norm(seen, network.norm), network.widen)
    content, gate = wide[:, :32], wide[:, 32:]
    erf = np.vectorize(math.erf)
    gelu = gate * (1 + erf(gate / math.sqrt(2))) / 2
    expected = seen + linear(content * gelu, network.narrow)
    found = network(torch.from_numpy(texts)).detach().numpy()
    assert np.allclose(found, expected, atol=1e-10)
