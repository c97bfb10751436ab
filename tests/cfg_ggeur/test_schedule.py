"""``train.scheduler``: the rate over rounds."""

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    local_schedule,
    training_settings,
)
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import CosineSchedule, StepSchedule


def load(*words):
    base = ["federate.method", "ggeur", "ggeur.use", True, "train.optimizer.lr", 0.2]
    base += ["data.type", "digits_quickstart@ggeur"]
    return load_config(None, [*base, *words])


def test_there_is_none_by_default():
    cfg = load()
    assert local_schedule(cfg) is None
    training = training_settings(cfg)
    assert training.in_round(7) is training


def test_it_falls_by_steps_of_rounds():
    cfg = load(
        *("train.scheduler.type", "StepLR", "train.scheduler.step_size", 3),
        *("train.scheduler.gamma", 0.5),
    )
    training = training_settings(cfg)
    rates = [training.in_round(r).optimizer.lr for r in range(1, 8)]
    assert rates == [0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05]
    assert training.in_round(0).optimizer.lr == 0.2


def test_its_defaults():
    found = local_schedule(load("train.scheduler.type", "StepLR"))
    assert found == StepSchedule(10, 0.1)


def test_it_falls_as_half_a_cosine():
    """The rates of torch's own schedule, one step a round."""
    import torch

    cosine = ["train.scheduler.type", "CosineAnnealingLR"]
    cfg = load(*cosine, *("train.scheduler.T_max", 5, "train.scheduler.eta_min", 0.02))
    training = training_settings(cfg)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5, 0.02)
    for number in range(1, 7):
        rate = training.in_round(number).optimizer.lr
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    assert training.in_round(9).optimizer.lr == pytest.approx(0.02)
    whole = load(*cosine, "federate.total_round_num", 8)
    assert local_schedule(whole) == CosineSchedule(8)
    first = local_schedule(load(*cosine, "train.scheduler.first_rate", 1e-5))
    assert first.rate(0.2, 1) == 1e-5
    assert first.rate(0.2, 2) > 0.1


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("type", "ExponentialLR", "type: must be one of"),
        ("step_size", 0, "step_size: must be a whole number"),
        ("step_size", 2.5, "step_size: must be a whole number"),
        ("gamma", 0, "gamma: must be above 0"),
        ("gamma", 1.5, "gamma: must be above 0 and at most 1"),
        ("T_max", 5, "T_max: the plugin's StepLR takes step_size and gamma"),
    ],
)
def test_refusals(key, value, problem):
    with pytest.raises(ConfigError, match=rf"train\.scheduler\.{problem}"):
        load(f"train.scheduler.{key}", value)
