"""Canaries in the bytes of whole releases: nobody tells them better than claimed.

The observer knows all rows but the canary, all that colluders know, and the bytes that
it sees, so the likelihood ratio is the best statistic. A mechanism of Gaussian privacy
mu has ``Phi^-1(true positives) - Phi^-1(false ones) <= mu``. The Clopper-Pearson bounds
of both rates bound mu from below, and so epsilon at the claimed delta.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm

from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.embedded import EmbeddedEngine
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.differential_privacy import noisy_release
from federatedscope_ggeur.extras.differential_privacy.exchange import (
    NoisyReleaseExchange,
)
from federatedscope_ggeur.extras.differential_privacy.noise import (
    NoiseSettings,
    Releaser,
)
from federatedscope_ggeur.extras.differential_privacy.shares import NoisyShares
from federatedscope_ggeur.extras.differential_privacy.uploads import ReleaseVector
from federatedscope_ggeur.extras.secure_sums.messages import MaskedVector
from federatedscope_ggeur.extras.secure_sums.settings import SumSettings

EPSILON, DELTA, CLIENTS, ROWS, DIM = 4.0, 1e-5, 3, 4, 3
#: Half of the noise: the epsilon whose mu is twice that of EPSILON.
HALF_NOISE = noisy_release.epsilon_of(2 * noisy_release.mu_of(EPSILON, DELTA), DELTA)
MODES = {
    "distributed": ["ggeur.privacy.secure_sums", "statistics"],
    "client": ["ggeur.privacy.dp.noise", "client"],
    "server": ["ggeur.privacy.dp.noise", "server"],
}

pytestmark = pytest.mark.slow


@cache
def rows_with(canary):
    """Rows of three clients; client 1 may have one more, far from all others."""
    clients = np.repeat(np.arange(1, CLIENTS + 1), ROWS)
    features = np.zeros((len(clients) + canary, DIM), dtype="float32")
    features[:, 0] = -1
    if canary:
        clients, features[-1, 0] = np.append(clients, 1), 1
    labels = np.zeros(len(clients), dtype=np.int64)
    return FederatedData.from_arrays(features, labels, clients, class_names=["a", "b"])


class Releases:
    """Releases of one federation; each is round 0 of a run with noise of its own."""

    def __init__(self, cfg, canary):
        self._first = Run(cfg, rows_with(canary))
        self._results = self._first.history.results()
        self.role = self._first.settings.role
        self.noise = self.role.of(NoiseSettings)

    def seen(self, seed):
        """What the server is left with, and what clients sent: by kind and client."""
        noise = replace(self.noise, test_seed=seed)
        own = [noise]
        if self.role.demands.only_totals:
            own.append(replace(self.role.of(SumSettings), summand=NoisyShares(noise)))
        role = self.role.with_own(*own)
        settings = replace(self._first.settings, role=role)
        engine = EmbeddedEngine(self._first.data, settings, self._results)
        sent = {}

        def note(request, replies):
            sent[request.kind.name] = {k: up[0] for k, up in replies.items()}

        engine.listen = note
        engine.carry(engine.coordinator.round0())
        noisy = engine.coordinator.find(NoisyReleaseExchange).released

        @cache
        def told(number, stage):
            """What a client has sent, if it tells."""
            client = engine.clients[number]
            own = Releaser(number, client.features, client.labels, noise)
            return torch.from_numpy(own.vector(stage, CLIENTS, noisy.centre))

        return noisy, sent, told


def seen_by(mode, noisy, sent, told, colluders):
    """What the observer has of each stage, less all that it knows but the canary."""
    found = {}
    for stage in noisy_release.RELEASE_STAGES:
        if mode == "client":
            data = sent[f"release_{stage}"][1]
            found[stage] = ReleaseVector.from_bytes(data, None, "client 1").values
        elif mode == "distributed":
            data = sent[f"sum_{stage}"].items()
            masked = [MaskedVector.from_bytes(d, None, f"client {k}") for k, d in data]
            total = sum(one.masked for one in masked)  # modulo 2^64, as the server does
            for k in range(CLIENTS - colluders + 1, CLIENTS + 1):
                total = total - told(k, stage)
            found[stage] = total
        else:
            known = {
                noisy_release.MOMENTS: [noisy.counts, torch.full((DIM,), torch.nan)],
                noisy_release.SPREAD: [noisy.sums.flatten()],
            }
            found[stage] = torch.cat(known[stage]) * 2**noisy_release.GRID_BITS
    return {stage: one.double().numpy() for stage, one in found.items()}


def log_ratio(mode, claimed, release, colluders):
    """The log-likelihood ratio of the canary, by the noise that is claimed."""
    noisy, sent, told = release
    centre, total = noisy.centre, 0.0
    who = range(1, CLIENTS + 1)
    honest = {"client": who[:1], "server": who}.get(mode, who[: CLIENTS - colluders])
    adding = len(honest) if mode == "distributed" else 1
    seen = seen_by(mode, noisy, sent, told, colluders)
    for stage in noisy_release.RELEASE_STAGES:
        without, there = (
            sum(exact(claimed, stage, rows_with(canary), k, centre) for k in honest)
            for canary in (False, True)
        )
        change = (there - without).astype(float)
        variance = adding * claimed.deviations(stage) ** 2
        off = seen[stage] - without
        total += np.nansum((off * change - change**2 / 2) / variance)
    return total


def exact(plan, stage, data, number, centre):
    rows = data.clients[number - 1].train
    if stage == noisy_release.MOMENTS:
        return plan.moments(rows.features, rows.labels)
    return plan.spread(rows.features, rows.labels, centre)


def epsilons_found(mode, cfg, claimed, runs, colluders=(1,)):
    """Bounds from below, for so many colluders each, by how often a run with the canary
    is taken for one, and how often one without."""
    taken = np.zeros((2, len(colluders)), dtype=int)
    for canary in (False, True):
        releases = Releases(cfg, canary)
        for seed in range(runs):
            one = releases.seen(2 * seed + canary)
            found = [log_ratio(mode, claimed, one, t) > 0 for t in colluders]
            taken[int(canary)] += found
    most = beta.ppf(0.975, taken[0] + 1, runs - taken[0])
    least = beta.ppf(0.025, taken[1], runs - taken[1] + 1)
    return [
        noisy_release.epsilon_of(mu, DELTA) for mu in norm.isf(most) - norm.isf(least)
    ]


def settings_of(config, mode, epsilon=EPSILON):
    own = ["ggeur.closed_form", "lda", "ggeur.privacy.dp.epsilon", epsilon]
    own += ["ggeur.privacy.dp.rows_per_class", 20, "federate.make_global_eval", True]
    return config(*own, *MODES[mode])


def claimed_plan(cfg):
    return Releases(cfg, False).noise.plan_of(CLIENTS)


@pytest.mark.parametrize("mode", ["client", "server"])
def test_nobody_finds_a_canary_more_often_than_epsilon_says(config, mode):
    """The noise is seeded, so a test that passes once passes always."""
    cfg = settings_of(config, mode)
    claimed, weak = claimed_plan(cfg), settings_of(config, mode, HALF_NOISE)
    (found,) = epsilons_found(mode, cfg, claimed, runs=70)
    assert found <= EPSILON
    (found,) = epsilons_found(mode, weak, claimed, runs=70)
    assert found > EPSILON


def test_nor_do_the_server_and_colluders_unless_there_is_one_too_many(config):
    cfg = settings_of(config, "distributed")
    allowed, more = epsilons_found(
        "distributed", cfg, claimed_plan(cfg), runs=250, colluders=(1, 2)
    )
    assert allowed <= EPSILON < more
