"""Which rooms statistics and a round enter, as `benchmarks/trace.py` finds them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from federatedscope_ggeur.federation.exchanges import ORDER

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "trace.py"


@pytest.fixture(scope="module")
def trace():
    spec = importlib.util.spec_from_file_location("trace_of_rooms", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_statistics_enter_each_exchange_once(trace, tmp_path):
    found = trace.trace_statistics(trace.quickstart(str(tmp_path)))
    entered = found.exchanges()
    assert entered == ["statistics", "space", "augmentation"]
    assert set(found.rooms()) <= {*trace.SHARED_ROOMS, *ORDER}
    assert "exchanges/statistics/threshold.py" in found.files


@pytest.mark.slow
def test_a_later_round_enters_training_and_evaluation_alone(trace, tmp_path):
    found = trace.trace_round(trace.quickstart(str(tmp_path)))
    assert set(found.exchanges()) == {"training", "evaluation"}
