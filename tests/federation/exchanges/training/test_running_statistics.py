"""The mean of running statistics over a round, beside numpy."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.federation.exchanges.training.running_statistics import (
    mean_running_statistics,
)
from federatedscope_ggeur.methods import Update
from federatedscope_ggeur.models import (
    LinearHead,
    ModelSettings,
    NetworkSettings,
    build_model,
    num_buffers,
    to_vector,
)


@pytest.fixture
def model():
    return build_model(64, 3, ModelSettings(network=NetworkSettings("digits_cnn")))


def updates(model, weights, seed=0):
    generator = torch.Generator().manual_seed(seed)
    size = len(to_vector(model))
    return [
        Update(k, float(n), torch.rand(size, generator=generator), 1)
        for k, n in enumerate(weights, start=1)
    ]


@pytest.mark.parametrize("weights", [(5,), (3, 1, 6), (0, 4, 4)])
def test_it_is_the_weighted_mean(model, weights):
    before, sent, q = to_vector(model), updates(model, weights), num_buffers(model)
    found = mean_running_statistics(model, before, sent)
    wanted = sum(
        n / sum(weights) * u.params[-q:].double().numpy() for n, u in zip(weights, sent)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert torch.equal(to_vector(model), torch.cat([before[:-q], found]))


def test_they_stay_where_nobody_has_rows(model):
    before, q = to_vector(model), num_buffers(model)
    for sent in ([], updates(model, (0, 0))):
        assert torch.equal(mean_running_statistics(model, before, sent), before[-q:])


def test_they_stay_where_weights_stay_with_clients(model):
    before, q = to_vector(model), num_buffers(model)
    sent = [Update(1, 4.0, torch.zeros(0), 1)]
    assert torch.equal(mean_running_statistics(model, before, sent), before[-q:])


def test_a_head_has_none():
    head = LinearHead(3, 2)
    found = mean_running_statistics(head, to_vector(head), updates(head, (1, 2)))
    assert len(found) == 0
