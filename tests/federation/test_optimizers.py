"""Optimisers on one flat vector do what torch's do on parameters."""

import math

import pytest
import torch
from early_stop_oracle import RULES, VALUES, first_stop, stops_at
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.federation import EarlyStopSettings, OptimizerSettings

SIZE, STEPS = 30, 20


def random_vectors(count):
    return torch.randn(count, SIZE, generator=torch.Generator().manual_seed(0))


def take_steps(settings, start, gradients):
    """Steps as `fit` takes them: the gradient joins ``beta * buffer``."""
    vector = start.clone()
    optimizer = settings.build(vector, torch.zeros_like(vector))
    for gradient in gradients:
        optimizer.buffer.mul_(optimizer.beta).add_(gradient)
        optimizer.step()
    return vector


def take_torch_steps(settings, start, gradients):
    parameter = torch.nn.Parameter(start.clone())
    make = getattr(torch.optim, settings.type)
    optimizer = make([parameter], lr=settings.lr, **settings.options)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {}),
        ("SGD", {"momentum": 0.9}),
        ("SGD", {"weight_decay": 0.1}),
        ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("SGD", {"momentum": 0.9, "dampening": 0.5}),
        ("Adam", {}),
        ("Adam", {"weight_decay": 0.1, "betas": (0.8, 0.9)}),
    ],
)
def test_steps_equal_those_of_torch(name, options):
    start, *gradients = random_vectors(STEPS + 1)
    settings = OptimizerSettings(name, 0.05, options)
    mine = take_steps(settings, start, gradients)
    theirs = take_torch_steps(settings, start, gradients)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    assert not torch.equal(mine, start)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [0, 1, 7, 300])
def test_reach_is_how_far_torch_goes_along_one_gradient(momentum, steps):
    settings = OptimizerSettings("SGD", 0.3, {"momentum": momentum})
    ones = [torch.ones(SIZE)] * steps
    moved = take_torch_steps(settings, torch.zeros(SIZE), ones) if steps else [0.0]
    assert -float(moved[0]) == pytest.approx(settings.reach(steps), rel=1e-4)


@pytest.mark.parametrize("own", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("wanted", [0.0, 0.9])
def test_fewer_steps_reach_as_far(own, wanted):
    options = {"momentum": own, "weight_decay": 1e-4}
    settings = OptimizerSettings("SGD", 0.1, options)
    fewer = settings.as_far(120, 11, wanted)
    assert fewer.reach(11) == pytest.approx(settings.reach(120), rel=1e-9)
    assert fewer.momentum == max(own, wanted)
    assert fewer.options["weight_decay"] == 1e-4
    assert settings.options["momentum"] == own
    assert settings.as_far(5, 5) == settings


@pytest.mark.parametrize(
    ("options", "made"), [({}, "FlatAdam"), ({"amsgrad": True}, "TorchOptimizer")]
)
def test_plain_adam_takes_torchs_fused_step(options, made):
    vector = torch.zeros(SIZE)
    optimizer = OptimizerSettings("Adam", 0.05, options).build(vector, vector.clone())
    assert type(optimizer).__name__ == made


def test_a_rate_of_zero_stays_zero():
    assert OptimizerSettings("SGD", 0.0).as_far(10, 1, 0.9).lr == 0


# Early stopping: FederatedScope's rule, value by value.


@examples(300)
@given(RULES, VALUES, st.booleans())
def test_a_run_stops_where_the_plain_rule_says(rule, values, larger):
    wanted = stops_at(values, rule.patience, rule.delta, rule.mode, larger)
    assert first_stop(rule, values, larger) == wanted


@pytest.mark.parametrize("value", [1.0, math.nan])
def test_a_tie_and_nan_start_the_count_again(value):
    rule = EarlyStopSettings(patience=2)
    assert not rule.stops_after([1.0, 2.0, value, 3.0], larger_is_better=False)
    assert rule.stops_after([1.0, 2.0, 3.0], larger_is_better=False)


def test_without_patience_or_values_nothing_stops():
    assert not EarlyStopSettings(0).stops_after([1.0, 2.0, 3.0], False)
    assert not EarlyStopSettings(1).stops_after([], False)
