"""Runs with secure sums give the same bits, whatever the order, and after a stop."""

import outcomes
import pytest
from private_words import SUMS

SUMMED = [
    *SUMS, "ggeur.geometry", "pooled", "ggeur.prototypes", "others", "ggeur.space",
    "standard", "federate.total_round_num", 4,
]  # fmt: skip


def outcome(cfg, **how):
    """All that a run gives but times. Masks are random."""
    return outcomes.outcome(cfg, **how)[:2]


@pytest.fixture
def whole(config):
    return outcome(config(*SUMMED))


def test_in_another_order_one_at_a_time_with_no_memory(config, whole):
    small = config(*SUMMED, "ggeur.round0_window", 1, "ggeur.memory_limit", 0)
    assert outcome(small, order=outcomes.backwards) == whole


@pytest.mark.slow
def test_in_two_processes(config, whole):
    assert outcome(config(*SUMMED), workers=2) == whole


@pytest.mark.parametrize("last", [0, pytest.param(2, marks=pytest.mark.slow), 4])
def test_stopped_and_restored(config, whole, tmp_path, last):
    def made(*more):
        return config(*SUMMED, *more)

    assert outcomes.restored(made, tmp_path / "point", last)[:2] == whole
