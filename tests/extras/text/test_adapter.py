"""FedCLIP's adapter and its losses, in plain numpy; a step of Adam."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.adapter import AdapterHead
from federatedscope_ggeur.extras.text.classes import ClassTexts
from federatedscope_ggeur.extras.text.keys import TEXT_MODELS
from federatedscope_ggeur.federation.exchanges.training.fit import fit
from federatedscope_ggeur.federation.optimizers import (
    OptimizerSettings,
)
from federatedscope_ggeur.federation.settings import TrainingSettings
from federatedscope_ggeur.models import load_vector, num_parameters, to_vector

C, D, SCALE = 3, 5, 30.0
#: The published optimiser.
ADAM = {"betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.2}


def texts(classes=C, dim=D) -> ClassTexts:
    rows = torch.randn(classes, dim, generator=torch.Generator().manual_seed(1))
    return ClassTexts(torch.nn.functional.normalize(rows, dim=1), SCALE)


def made(kind="batch") -> AdapterHead:
    model = TEXT_MODELS["fedclip"].build(texts(), loss=kind)
    assert isinstance(model, AdapterHead)
    return model.reset(torch.Generator().manual_seed(2))


def batch(count=7):
    rng = np.random.default_rng(3)
    rows = 10 * rng.normal(size=(count, D)).astype(np.float32)
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
    model, (x, _) = made(), batch()
    rows = adapted(model, x.double().numpy())
    logits = SCALE * rows @ texts().features.double().numpy().T
    assert np.allclose(model.represent(x).detach().numpy(), rows, atol=1e-6)
    assert np.allclose(model(x).detach().numpy(), logits, atol=1e-4)


@pytest.mark.parametrize("kind", ["batch", "class"])
def test_losses_are_the_oracle(kind):
    model, (x, y) = made(kind), batch()
    rows, w = adapted(model, x.double().numpy()), texts().features.double().numpy()
    if kind == "class":
        shares = softmax(SCALE * rows @ w.T)
        expected = -np.log(shares[np.arange(len(y)), y]).mean()
    else:
        pairs, own = SCALE * rows @ w[y].T, np.arange(len(y))
        of_images = -np.log(softmax(pairs)[own, own]).mean()
        of_texts = -np.log(softmax(pairs.T)[own, own]).mean()
        expected = (of_images + of_texts) / 2
    found = float(model.loss(model(x), y).detach())
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["batch", "class"])
def test_one_step_is_that_of_torchs_adam(kind):
    model, (x, y) = made(kind), batch()
    start = to_vector(model)
    adam = torch.optim.Adam(model.parameters(), lr=5e-3, **ADAM)
    model.loss(model(x), y).backward()
    adam.step()
    expected = to_vector(model)
    settings = TrainingSettings(OptimizerSettings("Adam", 5e-3, ADAM), batch_size=7)
    found = fit(made(kind), start, x, y, settings, 0)
    assert found.steps == 1
    assert torch.allclose(found.params, expected, atol=1e-6)
    assert not torch.allclose(found.params, start, atol=1e-4)


def test_a_pair_alone_is_passed_over():
    (x, y), settings = batch(7), TrainingSettings(OptimizerSettings("Adam"), 1)
    for kind, steps in (("batch", 2), ("class", 3)):
        settings = TrainingSettings(OptimizerSettings("Adam", 0.1, ADAM), batch_size=3)
        assert fit(made(kind), to_vector(made(kind)), x, y, settings, 0).steps == steps


def test_what_travels_is_the_adapter_alone_and_the_file_holds_the_text():
    model = TEXT_MODELS["fedclip"].build(texts(2, 512))
    assert num_parameters(model) == 2 * 512**2 + 2 * 512 == 525_312
    other = TEXT_MODELS["fedclip"].build(ClassTexts(torch.zeros(C, D), 1.0))
    other.load_state_dict(made().state_dict())
    x = batch()[0]
    assert torch.equal(other(x), made()(x))
    load_vector(other, 0 * to_vector(other))
    assert torch.equal(other.texts, texts().features)
    with pytest.raises(ConfigError, match="AdapterHead has no last layer"):
        _ = other.classifier
    assert torch.equal(other.last_input(x), other.represent(x))
