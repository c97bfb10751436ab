"""Whole runs whose clients train at once. The steps are tested at their room."""

from __future__ import annotations

import pytest
import torch

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.reporting import numbers


def followed(cfg, packs=False):
    run = Run(cfg)
    run.engine.packs = packs
    return run, run.follow(lambda record: None)


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_the_numbers_are_those_of_clients_one_by_one(config, method):
    _, alone = followed(config("ggeur.base_method", method))
    run, at_once = followed(
        config("ggeur.base_method", method, "ggeur.batched", "always")
    )
    torch.testing.assert_close(
        torch.cat([p.flatten() for p in at_once.model.parameters()]),
        torch.cat([p.flatten() for p in alone.model.parameters()]),
        rtol=1e-4,
        atol=1e-6,
    )
    for one, other in zip(alone.rounds, at_once.rounds):
        assert (one.bytes_up, one.bytes_down) == (other.bytes_up, other.bytes_down)
        assert one.accuracy == other.accuracy
    assert "training on cpu, all clients of a round at once" in run.describe()


def test_packing_every_answer_changes_nothing(config):
    cfg = config("ggeur.batched", "always", "ggeur.base_method", "feddyn")
    _, carried = followed(cfg)
    _, packed = followed(cfg, packs=True)
    assert numbers(packed)["rounds"] == numbers(carried)["rounds"]
    assert numbers(packed)["final"] == numbers(carried)["final"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["ggeur.augmentation", "fedmix"], "fedavg + fedmix has no batched form"),
        (["ggeur.base_method", "fedprox", "fedprox.mu", 0.1], ""),
    ],
)
def test_what_has_no_batched_form_is_said_and_trains_as_before(config, settings, why):
    run, at_once = followed(config(*settings, "ggeur.batched", "always"))
    (line,) = (line for line in run.describe() if line.startswith("training on"))
    assert line.endswith(f", one client after the other: {why}" if why else "at once")
    if why:
        _, alone = followed(config(*settings))
        assert numbers(at_once)["rounds"] == numbers(alone)["rounds"]


def test_by_default_a_cpu_trains_one_client_after_the_other(config):
    run = Run(config())
    assert not [line for line in run.describe() if line.startswith("training on")]
