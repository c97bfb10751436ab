"""FedSAM: the perturbation by hand, a quadratic loss in closed form, identities."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.methods import FedSAM, LocalContext
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector

DIM, CLASSES, RATE = 5, 3, 0.1


def context(model):
    return LocalContext(
        1, 1, model, to_vector(model), {}, {}, {}, torch.ones(CLASSES).long(), 1,
        OptimizerSettings(), 0,
    )  # fmt: skip


def made(hidden=0):
    model = build_model(DIM, CLASSES, ModelSettings(hidden))
    return model.reset(torch.Generator().manual_seed(0))


def perturbation(method, w, g, is_weight):
    """Sharpness-aware minimisation's, and the adaptive one's, as they are written."""
    if not method.adaptive:
        return method.rho * g / np.linalg.norm(g)
    t = np.where(is_weight, np.abs(w) + method.eta, 1.0)
    return method.rho * t**2 * g / np.linalg.norm(t * g)


@pytest.mark.parametrize("adaptive", [False, True])
class TestStep:
    def method(self, adaptive):
        return FedSAM(rho=0.3, eta=0.1, adaptive=adaptive)

    @pytest.mark.parametrize("hidden", [0, 4])
    def test_the_perturbation(self, adaptive, hidden):
        model, method = made(hidden), self.method(adaptive)
        w = to_vector(model)
        g = torch.randn(len(w), generator=torch.Generator().manual_seed(1))
        is_weight = np.concatenate(
            [np.full(p.numel(), p.dim() == 2) for p in model.parameters()]
        )
        found = method.local(context(model)).perturb(w, g).numpy()
        given = (part.double().numpy() for part in (w, g))
        wanted = perturbation(method, *given, is_weight)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
        if not adaptive:
            assert np.linalg.norm(found) == pytest.approx(0.3, rel=1e-5)

    def test_no_gradient_is_no_perturbation(self, adaptive):
        model = made()
        w = to_vector(model)
        found = self.method(adaptive).local(context(model)).perturb
        assert not found(w, torch.zeros_like(w)).any()

    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    @pytest.mark.parametrize("clip", [0.0, 0.5])
    def test_steps_on_a_quadratic_loss(self, adaptive, momentum, clip):
        """L = 1/2 w^T A w: the gradient at w + e is A (w + e)."""
        model, method = made(), self.method(adaptive)
        start = to_vector(model)
        curvature = torch.linspace(0.5, 2.0, len(start))
        sizes = [p.numel() for p in model.parameters()]

        def objective(model, features, labels):
            parts = zip(model.parameters(), curvature.split(sizes))
            return 0.5 * sum((a * p.flatten().square()).sum() for p, a in parts)

        hooks = replace(method.local(context(model)), objective=objective)
        optimizer = OptimizerSettings("SGD", RATE, {"momentum": momentum})
        settings = TrainingSettings(optimizer, 3, "batch", 4, grad_clip=clip or -1.0)
        rows = torch.zeros(4, DIM), torch.zeros(4, dtype=torch.int64)
        found = fit(model, start, *rows, settings, 0, hooks).params

        w, a = start.double().numpy(), curvature.double().numpy()
        is_weight, velocity = np.arange(len(w)) < sizes[0], 0.0
        for _ in range(3):
            g = a * (w + perturbation(method, w, a * w, is_weight))
            if clip:
                g = g * min(1.0, clip / np.linalg.norm(g))
            velocity = momentum * velocity + g
            w = w - RATE * velocity
        np.testing.assert_allclose(found.numpy(), w, rtol=1e-4, atol=1e-6)
