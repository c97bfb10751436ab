"""The pull to the zero-shot head against finite differences, and heads between."""

from __future__ import annotations

import pytest
import torch

from federatedscope_ggeur.extras.text.prompts import TextMix, TextPull
from federatedscope_ggeur.federation.exchanges.training.fit import fit
from federatedscope_ggeur.federation.optimizers import (
    OptimizerSettings,
)
from federatedscope_ggeur.federation.settings import TrainingSettings
from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.methods import LocalHooks
from federatedscope_ggeur.models import LinearHead, fold, to_vector

C, D = 3, 4


def draws(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def spaces():
    root = draws(D, D).double()
    centre = draws(D).double()
    return [
        Space.raw(D),
        Space("standard", centre, 0.5),
        Space("whitened", centre, matrix=root @ root.T + torch.eye(D).double()),
    ]


@pytest.mark.parametrize("space", spaces(), ids=lambda space: space.kind)
def test_the_gradient_is_that_of_the_square_on_raw_embeddings(space):
    model, target = LinearHead(D, C), draws(C, D)
    pull = TextPull(target, 0.7)
    params, gradient = draws(C * D + C), torch.zeros(C * D + C)
    pull.added(LocalHooks(), model, space).add_correction(params, gradient)

    def loss(vector):
        weight = fold(model, vector, space)[: C * D].view(C, D).double()
        return 0.7 * float((weight - target).square().sum())

    for i in range(len(params)):
        step = torch.zeros_like(params)
        step[i] = 1e-2  # a quadratic: central differences have no error of their own
        found = (loss(params + step) - loss(params - step)) / 2e-2
        assert found == pytest.approx(float(gradient[i]), rel=1e-2, abs=2e-2)


def test_a_methods_own_correction_stays():
    model, called = LinearHead(D, C), []
    hooks = LocalHooks(add_correction=lambda params, gradient: called.append(1))
    pull = TextPull(draws(C, D), 0.5).added(hooks, model, Space.raw(D))
    pull.add_correction(draws(C * D + C), torch.zeros(C * D + C))
    assert called == [1]


def test_a_strong_pull_ends_at_the_zero_shot_head():
    model, target = LinearHead(D, C), draws(C, D)
    hooks = TextPull(target, 1e3).added(LocalHooks(), model, Space.raw(D))
    settings = TrainingSettings(OptimizerSettings("SGD", 4e-4), 30)
    rows, labels = draws(20, D), torch.arange(20) % C
    after = fit(model, to_vector(model), rows, labels, settings, 0, hooks).params
    assert torch.allclose(after[: C * D].view(C, D), target, atol=1e-2)


def test_heads_between_the_two():
    model, target, params = LinearHead(D, C), draws(C, D), draws(C * D + C)
    for share in (0.0, 0.25, 1.0):
        found = TextMix(target, share).mixed(model, params)
        weight = (1 - share) * target + share * params[: C * D].view(C, D)
        expected = torch.cat([weight.flatten(), share * params[C * D :]])
        assert torch.allclose(found, expected, atol=1e-6)
