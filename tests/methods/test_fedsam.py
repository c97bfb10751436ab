"""FedSAM: the perturbation by hand, a quadratic loss in closed form, identities."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.methods import FedSAM, LocalContext
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector

DIM, CLASSES, RATE = 5, 3, 0.1
METHOD = FedSAM(rho=0.3)


def context(model):
    return LocalContext(
        1, 1, model, to_vector(model), {}, {}, {}, torch.ones(CLASSES).long(), 1,
        OptimizerSettings(), 0,
    )  # fmt: skip


def made(hidden=0):
    model = build_model(DIM, CLASSES, ModelSettings(hidden))
    return model.reset(torch.Generator().manual_seed(0))


def perturbation(g):
    """Sharpness-aware minimisation's, as it is written."""
    return METHOD.rho * g / np.linalg.norm(g)


def test_no_gradient_is_no_perturbation():
    model = made()
    w = to_vector(model)
    found = METHOD.local(context(model)).perturb
    assert not found(w, torch.zeros_like(w)).any()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_steps_on_a_quadratic_loss(momentum, clip):
    """L = 1/2 w^T A w: the gradient at w + e is A (w + e)."""
    model = made()
    start = to_vector(model)
    curvature = torch.linspace(0.5, 2.0, len(start))
    sizes = [p.numel() for p in model.parameters()]

    def objective(model, features, labels):
        parts = zip(model.parameters(), curvature.split(sizes))
        return 0.5 * sum((a * p.flatten().square()).sum() for p, a in parts)

    hooks = replace(METHOD.local(context(model)), objective=objective)
    optimizer = OptimizerSettings("SGD", RATE, {"momentum": momentum})
    settings = TrainingSettings(optimizer, 3, "batch", 4, grad_clip=clip or -1.0)
    rows = torch.zeros(4, DIM), torch.zeros(4, dtype=torch.int64)
    found = fit(model, start, *rows, settings, 0, hooks).params

    w, a, velocity = start.double().numpy(), curvature.double().numpy(), 0.0
    for _ in range(3):
        g = a * (w + perturbation(a * w))
        if clip:
            g = g * min(1.0, clip / np.linalg.norm(g))
        velocity = momentum * velocity + g
        w = w - RATE * velocity
    np.testing.assert_allclose(found.numpy(), w, rtol=1e-4, atol=1e-6)
