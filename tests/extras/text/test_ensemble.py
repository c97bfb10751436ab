"""Zero-shot and a closed form together, in plain numpy; as vectors and state dicts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.classes import ClassTexts, EnsembleHead
from federatedscope_ggeur.models import LinearHead, MixtureHead, load_vector, to_vector


def parts():
    rng = np.random.default_rng(0)
    texts = rng.normal(size=(3, 4))
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    head = LinearHead(4, 3).reset(torch.Generator().manual_seed(0))
    text = ClassTexts(torch.from_numpy(texts).float(), 20.0, ensemble=0.5)
    return head, text, texts, rng.normal(size=(6, 4)) * 3


def test_logits():
    head, text, texts, rows = parts()
    found = EnsembleHead.of(head, text)(torch.from_numpy(rows).float())
    weight, bias = head.classifier.weight, head.classifier.bias
    linear = rows @ weight.detach().numpy().T + bias.detach().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = 20 * unit @ texts.T + 0.5 * linear
    assert np.allclose(found.detach().numpy(), expected, atol=1e-4)


def test_a_head_alone_keeps_its_logits():
    head, _, _, rows = parts()
    x = torch.from_numpy(rows).float()
    mixture = MixtureHead.of_components(
        torch.randn(5, 4), torch.randn(5), torch.tensor([0, 0, 1, 2, 2]), 3
    )
    for one in (head, mixture):
        assert torch.allclose(EnsembleHead.of(one)(x), one(x), atol=1e-6)
    vector = to_vector(EnsembleHead.of(mixture))
    other = EnsembleHead(4, 3)
    load_vector(other, vector)
    assert torch.allclose(other(x), mixture(x), atol=1e-6)
    again = EnsembleHead(4, 3)
    again.load_state_dict(other.state_dict())
    assert torch.equal(to_vector(again), vector)
    with pytest.raises(ConfigError, match="parameters do not fit"):
        load_vector(other, vector[:-1])


def test_there_is_no_last_layer():
    model = EnsembleHead(4, 3).reset()
    assert not to_vector(model)[: 3 * 4].any()
    with pytest.raises(ConfigError, match="no last layer"):
        model.last_input(torch.zeros(1, 4))
    with pytest.raises(ConfigError, match="no last layer"):
        _ = model.classifier
