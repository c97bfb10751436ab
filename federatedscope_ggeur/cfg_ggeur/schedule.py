"""Settings of ``train.scheduler``, which changes the learning rate over rounds.

The section belongs to FederatedScope (FS). It takes new keys.
"""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.federation import CosineSchedule, StepSchedule
from federatedscope_ggeur.settings import not_negative, positive_share, whole

from .fs_keys import SCHEDULER_SECTION, settings_in

#: The settings of each schedule, with torch's defaults and with rules. The value 0 of
#: T_max stands for the number of rounds. The value 0 of first_rate (the rate of round
#: 1) means that round 1 has no rate of its own.
_TAKES = {
    "StepLR": {"step_size": (10, whole(1)), "gamma": (0.1, positive_share)},
    "CosineAnnealingLR": {
        "T_max": (0, whole(1)),
        "eta_min": (0.0, not_negative),
        "first_rate": (0.0, not_negative),
    },
}


def local_schedule(cfg) -> StepSchedule | CosineSchedule | None:
    """The schedule of ``train.scheduler``; None for a constant rate."""
    node = cfg.train.scheduler
    if not node.type:
        return None
    found = {n: node.get(n, value) for n, (value, _) in _TAKES[node.type].items()}
    if node.type == "StepLR":
        return StepSchedule(int(found["step_size"]), float(found["gamma"]))
    period = int(found["T_max"]) or cfg.federate.total_round_num
    return CosineSchedule(period, float(found["eta_min"]), float(found["first_rate"]))


def schedule_problems(cfg) -> Iterator[str]:
    """Yield the problems of the keys in ``train.scheduler``, except of ``type``."""
    kind = cfg.train.scheduler.type
    takes = _TAKES.get(kind, _TAKES["StepLR"])
    for name, value in settings_in(cfg.train.scheduler).items():
        if name in ("type", "warmup_ratio"):
            continue
        if name not in takes:
            *others, last = takes
            yield (
                f"{SCHEDULER_SECTION}.{name}: the plugin's {kind or 'StepLR'} takes "
                f"{', '.join(others)} and {last}, in rounds"
            )
        elif problem := takes[name][1](value):
            yield f"{SCHEDULER_SECTION}.{name}: {problem}"
