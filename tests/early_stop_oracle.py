"""FederatedScope's rule of early stopping, written down plainly.

After `federatedscope/core/monitors/early_stopper.py`, class EarlyStopper.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from federatedscope_ggeur.federation import EarlyStopSettings

LARGER_IS_BETTER = {"acc": True, "correct": True, "loss": False, "avg_loss": False}


def stops_at(
    values: Sequence[float], patience: int, delta: float, mode: str, larger: bool
) -> int | None:
    """The position from 1 of the value at which a run stops; None if it never does."""
    best, count = None, 0
    for position, value in enumerate(values, 1):
        if patience == 0:
            continue
        if mode == "mean":
            if position > patience:
                before = values[position - 1 - patience : position - 1]
                mean = sum(before) / patience
                if (value < mean + delta) if larger else (mean - delta < value):
                    return position
            continue
        if best is None:
            best = value
        elif (value < best + delta) if larger else (best - delta < value):
            count += 1
        else:
            best, count = value, 0
        if count >= patience:
            return position
    return None


# Few different values: ties are what the rule is particular about.
VALUES = st.lists(
    st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(-2, 2)), max_size=25
)
RULES = st.builds(
    EarlyStopSettings,
    patience=st.integers(0, 4),
    delta=st.sampled_from([0.0, 0.25, 0.1]),
    mode=st.sampled_from(["best", "mean"]),
)


def first_stop(rule: EarlyStopSettings, values, larger: bool) -> int | None:
    ends = (
        n for n in range(1, len(values) + 1) if rule.stops_after(values[:n], larger)
    )
    return next(ends, None)
