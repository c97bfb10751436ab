"""``train.scheduler``: the learning rate over rounds.

It is FederatedScope's (FS's) own section, which takes new keys, as an optimiser's does.
"""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.cfg_ggeur.fs_keys import SCHEDULER_SECTION, settings_in
from federatedscope_ggeur.federation import StepSchedule
from federatedscope_ggeur.settings import positive_share, whole

#: What the schedule takes, with torch's defaults and the rules of its values.
_STEP_LR = {"step_size": (10, whole(1)), "gamma": (0.1, positive_share)}


def local_schedule(cfg) -> StepSchedule | None:
    """How ``train.scheduler`` changes the rate over rounds, if at all."""
    node = cfg.train.scheduler
    if not node.type:
        return None
    size, gamma = (node.get(name, value) for name, (value, _) in _STEP_LR.items())
    return StepSchedule(int(size), float(gamma))


def schedule_problems(cfg) -> Iterator[str]:
    """What is wrong with its keys; that of the type is a key of FS."""
    for name, value in settings_in(cfg.train.scheduler).items():
        if name in ("type", "warmup_ratio"):
            continue
        if name not in _STEP_LR:
            yield (
                f"{SCHEDULER_SECTION}.{name}: the plugin's StepLR takes "
                f"{' and '.join(_STEP_LR)}, in rounds"
            )
        elif problem := _STEP_LR[name][1](value):
            yield f"{SCHEDULER_SECTION}.{name}: {problem}"
