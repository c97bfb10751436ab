"""FedTPG's network: its numbers, and what it makes, in plain numpy."""

from __future__ import annotations

import math

import numpy as np
import torch

from federatedscope_ggeur.extras.text.generator import ContextGenerator
from federatedscope_ggeur.models import num_parameters


def made(vectors=3, width=8, dim=12) -> ContextGenerator:
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
    network, texts = made(), np.random.default_rng(1).normal(size=(5, 12))
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


def test_the_order_of_classes_does_not_matter_and_their_number_may_vary():
    network, texts = made(), torch.randn(6, 12).double()
    order = torch.randperm(6)
    assert torch.allclose(network(texts), network(texts[order]), atol=1e-12)
    assert network(texts[:2]).shape == (3, 8)
