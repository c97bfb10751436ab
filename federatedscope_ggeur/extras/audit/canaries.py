"""Canaries: test the claim of differential privacy by adding one row to runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from scipy import stats

from federatedscope_ggeur.extras.differential_privacy.noise import SERVER, NoiseSettings
from federatedscope_ggeur.extras.differential_privacy.noisy_release import (
    MOMENTS,
    RELEASE_STAGES,
    ReleasePlan,
)

from .base import AttackResult, Report, hit_rate

#: The rates of false alarms at which attacks are scored.
ALARMS = (0.01, 0.05, 0.1)
#: Small sizes, so that a thousand runs take seconds. The effect of one row does not
#: depend on the sizes.
_CLASSES, _DIM, _ROWS = 2, 16, 20
#: The number of clients in audited runs with shared noise; one of them colludes.
_SHARING = 3


def canaries(
    settings: NoiseSettings,
    clients: int,
    runs: int = 1000,
    made_by: ReleasePlan | None = None,
) -> list[AttackResult]:
    """Attack many runs of the noise mechanism; half of them have one more row.

    This row, the canary, changes the release as much as one row can. The attacker knows
    all other rows, the messages of colluders, and the claimed noise. So the likelihood
    ratio is the best possible test.

    Parameters
    ----------
    settings : NoiseSettings
        The noise settings of the run.
    clients : int
        The number of clients in the run.
    runs : int
        The number of runs with the canary, and also of runs without it.
    made_by : ReleasePlan, optional
        The plan that draws the noise; by default the claimed plan. Tests use a weaker
        plan.

    References
    ----------
    Dong, Roth, Su 2022: at a rate a of false positives, a mu-GDP mechanism allows a
    rate of true positives of at most ``1 - Phi(Phi^-1(1 - a) - mu)``.
    """
    small = replace(settings.plan, num_classes=_CLASSES, dim=_DIM)
    sharing = min(clients, _SHARING)
    claimed = replace(settings, plan=small, tolerated=None).plan_of(sharing)
    plan = claimed if made_by is None else made_by
    honest = 1 if settings.noise == SERVER else claimed.clients - claimed.spared
    scores = {
        there: _scores(claimed, plan, honest, runs, there) for there in (False, True)
    }
    mu = claimed.sharers(honest)
    who = (
        "everyone who sees the release"
        if honest == 1
        else "the server and its colluders"
    )
    findings: list[AttackResult] = []
    for alarms in ALARMS:
        rate, low = hit_rate(scores[True], scores[False], alarms, len(ALARMS))
        # An upper bound of the true rate of false alarms, if the runs show `alarms`.
        false = alarms * runs
        most = float(stats.beta.ppf(0.95, false + 1, runs - false))
        limit = float(stats.norm.sf(stats.norm.isf(most) - mu))
        findings += Report("D1", who, "dp").of(
            f"canaries found at {100 * alarms:g}% false alarms, of {runs}",
            value=rate,
            low=low,
            high=1.0,
            chance=alarms,
            limit=limit,
            passed=low <= limit,
            tried=runs,
            note=f"mu {mu:.3f}",
        )
    return findings


def _scores(
    claimed: ReleasePlan, plan: ReleasePlan, honest: int, runs: int, there: bool
) -> np.ndarray:
    """The log-likelihood ratio of each run for the canary, up to a constant."""
    features = torch.zeros(_ROWS + 1, _DIM)
    features[:, 0] = -1.0
    features[-1, 0] = 1.0  # the canary, as far from the other rows as possible
    labels = torch.zeros(_ROWS + 1, dtype=torch.int64)
    noise = {
        stage: sum(plan.noises(stage, runs) for _ in range(honest))
        for stage in RELEASE_STAGES
    }
    variance = {s: honest * claimed.deviations(s) ** 2 for s in RELEASE_STAGES}
    ratios = np.zeros(runs)
    for run in range(runs):
        centre = torch.zeros(_DIM, dtype=torch.float64)
        for stage in RELEASE_STAGES:
            without, whole = (
                claimed.moments(features[:rows], labels[:rows])
                if stage == MOMENTS
                else claimed.spread(features[:rows], labels[:rows], centre)
                for rows in (_ROWS, _ROWS + 1)
            )
            total = (whole if there else without) + noise[stage][run]
            seen = (total - without).astype(np.float64)
            change = (whole - without).astype(np.float64)
            ratios[run] += float((seen * change / variance[stage]).sum())
            if stage == MOMENTS:
                _, centre = claimed.centre(total)
    return ratios
