"""Stages in settings, and draws that come again with their batch."""

import pytest
import torch

from federatedscope_ggeur.extras.networks.keys import stage_numbers
from federatedscope_ggeur.extras.networks.methods.feature_statistics import (
    BatchDraws,
    stage_problem,
)
from federatedscope_ggeur.models import ModelSettings, build_model


@pytest.mark.parametrize("value", [[], [1], [2, 4, 5], (1, 2), [1.0, 3.0]])
def test_lists_of_stages(value):
    assert stage_numbers(value) == ""


@pytest.mark.parametrize("value", [1, "1", [0], [1, 1], [3, 2], [1.5], [True], [None]])
def test_what_is_no_list_of_stages(value):
    assert "must be an ascending list of stages" in stage_numbers(value)


def test_a_head_has_no_stages():
    problem = stage_problem(build_model(6, 4, ModelSettings()))
    assert "this model has none" in problem
    assert "network" in problem


def test_draws_come_again_until_the_next_batch():
    numbers = iter(range(10))
    draws = BatchDraws(lambda stage, maps: (stage, next(numbers)))
    maps = torch.zeros(1, 1, 1, 1)
    assert draws.of(0, maps) == ((0, 0), True)
    assert draws.of(0, maps) == ((0, 1), True)  # no batch has been announced
    for first in (2, 4):
        rows = torch.zeros(3, 2)
        assert draws.new_batch(rows, torch.zeros(3)) is rows
        assert draws.of(0, maps) == ((0, first), True)
        assert draws.of(1, maps) == ((1, first + 1), True)
        assert draws.of(0, maps) == ((0, first), False)
        assert draws.of(1, maps) == ((1, first + 1), False)
