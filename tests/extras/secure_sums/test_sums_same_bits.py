"""Runs with secure sums give the same bits, whatever the order, and after a stop."""

import pytest
from private_words import SUMS

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.reporting import numbers

SUMMED = [
    *SUMS, "ggeur.geometry", "pooled", "ggeur.prototypes", "others", "ggeur.space",
    "standard", "federate.total_round_num", 4,
]  # fmt: skip


def outcome(cfg, order=sorted, workers=1):
    """All that a run gives but times."""
    going = Run(cfg, order=order)
    going.engine.workers = workers
    given = numbers(going.follow(lambda record: None))
    del given["config"]
    return given, going.history.head_bytes()


@pytest.fixture
def whole(config):
    return outcome(config(*SUMMED))


def test_in_another_order_one_at_a_time_with_no_memory(config, whole):
    small = config(*SUMMED, "ggeur.round0_window", 1, "ggeur.memory_limit", 0)
    assert outcome(small, lambda given: sorted(given, reverse=True)) == whole


@pytest.mark.slow
def test_in_two_processes(config, whole):
    assert outcome(config(*SUMMED), workers=2) == whole


@pytest.mark.parametrize("last", [0, pytest.param(2, marks=pytest.mark.slow), 4])
def test_stopped_and_restored(config, whole, tmp_path, last):
    path = tmp_path / "point"
    for record in Run(config(*SUMMED, "federate.save_to", path)).engine.run():
        if getattr(record, "round", 0) == last:
            break
    assert outcome(config(*SUMMED, "federate.restore_from", path)) == whole
