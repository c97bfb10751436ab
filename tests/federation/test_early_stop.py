"""Early stopping: FederatedScope's rule, value by value."""

from __future__ import annotations

import math

import pytest
from early_stop_oracle import RULES, VALUES, first_stop, stops_at
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.federation import EarlyStopSettings


@pytest.mark.slow
@settings(max_examples=300)
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
