"""A mechanism that keeps its claim passes; one with half the noise is caught.

Tests of audit/released.py, too: A10 and A11 on a release.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.audit.base import Clock, Transcript, Truth
from federatedscope_ggeur.extras.audit.canaries import canaries
from federatedscope_ggeur.extras.audit.known_rows import a10
from federatedscope_ggeur.extras.audit.liar import a11
from federatedscope_ggeur.extras.audit.transcript import recorded, truth_of
from federatedscope_ggeur.extras.differential_privacy.noise import NoiseSettings
from federatedscope_ggeur.extras.differential_privacy.noisy_release import (
    ReleasePlan,
    seeded_words,
    system_words,
)


@dataclass(frozen=True)
class Weak(ReleasePlan):
    """Half of the noise."""

    def noises(self, stage, count, words=system_words):
        return super().noises(stage, count, words) // 2


def settings(by, square):
    return NoiseSettings(ReleasePlan(9, 40, 4.0, 1e-5, square), by=by)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["client", "distributed", "server"])
def test_the_mechanism_keeps_its_claim(by, monkeypatch):
    # Fixed noise: some draws in a hundred exceed the limit by chance.
    monkeypatch.setattr("os.urandom", np.random.default_rng(0).bytes)
    found = list(canaries(settings(by, square=True), 9, runs=400))
    assert [one.passed for one in found] == [True] * 3
    # and the attack is a real one: it finds most of what it may
    assert found[-1].value > 0.7 * found[-1].limit


@pytest.mark.slow
@pytest.mark.parametrize("by", ["client", "distributed"])
def test_half_the_noise_is_caught(by):
    own = settings(by, square=False)
    small = ReleasePlan(2, 16, 4.0, 1e-5, False)
    clients, spared = (3, 2) if by == "client" else (3, 1)
    weak = Weak(**{**vars(small), "clients": clients, "spared": spared})
    found = list(canaries(own, 9, runs=300, made_by=weak))
    assert not all(one.passed for one in found)
    assert np.all([one.level == "dp" for one in found])


CLASSES, DIM = 6, 24


def truth():
    """Three clients; of each class client 1 has four rows, and client 2 or 3 has one
    or two."""
    drawn = torch.Generator().manual_seed(0)

    def rows(labels):
        return torch.randn(len(labels), DIM, generator=drawn), torch.tensor(labels)

    clients = {
        1: rows([c for c in range(CLASSES) for _ in range(4)]),
        2: rows([0, 1, 2]),
        3: rows([3, 3, 4, 5]),
    }
    return Truth(clients, rows([c for c in range(CLASSES) for _ in range(5)]), CLASSES)


def released(held, has_noise, square):
    plan = ReleasePlan(CLASSES, DIM, 4.0, 1e-5, square)
    words = seeded_words(np.random.default_rng(0))
    x, y = (torch.cat(parts) for parts in zip(*held.clients.values()))

    def noise(stage):
        return plan.noise(stage, words) * has_noise

    counts, centre = plan.centre(plan.moments(x, y) + noise("moments"))
    total = plan.spread(x, y, centre) + noise("spread")
    return Transcript(role=None, noisy=plan.released(counts, centre, total))


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("has_noise", [False, True])
def test_only_the_noise_stops_them(has_noise, square):
    held = truth()
    seen = released(held, has_noise, square)
    (members,) = a10(seen, held, Clock(10))
    (rows,) = a11(seen, held, Clock(10))
    assert members.passed is rows.passed is has_noise
    assert rows.tried == CLASSES
    assert rows.value == (0 if has_noise else CLASSES)
    assert rows.observer == "the server and client 1"


def test_a_run_is_attacked_by_what_it_released(config):
    settings = ["ggeur.closed_form", "lda", "ggeur.privacy.dp.epsilon", 4]
    settings += ["ggeur.privacy.dp.rows_per_class", 20, "federate.client_num", 6]
    settings += ["data.splitter_args", "[{'alpha': 0.05}]"]
    run = Run(config(*settings, "ggeur.privacy.secure_sums", "statistics"))
    seen, held = recorded(run), truth_of(run)
    assert seen.lied is None
    (members,) = a10(seen, held, Clock(10))
    (rows,) = a11(seen, held, Clock(10))
    assert members.tried == int(held.totals.sum())
    assert rows.tried
    assert rows.passed
