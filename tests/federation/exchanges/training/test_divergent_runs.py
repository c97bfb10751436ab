"""Runs that diverge and stay finite, on the embedded engine.

What is found, and when, is said by
tests/federation/exchanges/training/test_divergence.py.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest
from every_method import words

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.reporting import Results, results_table

WILD = ("train.optimizer.lr", 10_000)


def test_a_rate_far_too_high_is_named_in_the_log_the_results_and_the_table(
    config, caplog
):
    with caplog.at_level(logging.WARNING):
        results = run(config(*WILD))
    found = results.diverged
    assert (found.round, found.rate) == (1, 10_000)
    assert found.client in (1, 2, 3)
    assert found.largest_weight > 1000
    (line,) = (text for text in caplog.messages if "diverged" in text)
    assert f"in round 1 (client {found.client}, train.optimizer.lr 10000)" in line
    assert line.startswith(results_table(results).splitlines()[-1])
    assert Results.from_json(results.to_json()).diverged == found


@pytest.mark.parametrize(
    "settings",
    [
        *(pytest.param(words(n), marks=pytest.mark.slow) for n in ("moon", "fedopt")),
        ["ggeur.closed_form", "lda", "ggeur.init", "closed_form"],
        ["ggeur.calibrate", "ccvr"],
        ["train.optimizer.lr", 1],
        ["eval.freq", 2],
    ],
    ids=str,
)
def test_healthy_runs_raise_no_alarm(config, settings):
    assert run(config(*settings)).diverged is None


@pytest.mark.parametrize(("scale", "dim"), [(1e-22, 40), (1e10, 6)])
def test_embeddings_of_any_scale_give_the_same_augmented_sets(
    quickstart, tmp_path, scale, dim
):
    """What round 0 sends is relative to the embeddings, however small their squares."""
    sets = []
    for factor in (1.0, scale):
        root = tmp_path / f"{factor:g}"
        root.mkdir()
        rng = np.random.default_rng(0)
        for domain in ("art", "photo"):
            labels = np.repeat(np.arange(3), 60)
            features = (
                rng.normal(size=(180, dim)) + 2 * rng.normal(size=(3, dim))[labels]
            )
            np.savez(root / f"{domain}.npz", features=features * factor, labels=labels)
        words = ["data.type", "embeddings@ggeur", "data.root", str(root)]
        words += ["federate.total_round_num", "1", "ggeur.step1_size", "80"]
        words += ["ggeur.step2_size", "20", "ggeur.space", "raw"]
        going = Run(load_config(quickstart, [*words, "train.optimizer.lr", "0.01"]))
        going.follow(lambda record: None)
        sets.append({k: c.recipe.draw(1) for k, c in going.engine.clients.items()})
    for number, (features, labels) in sets[0].items():
        scaled, same = sets[1][number]
        assert labels.equal(same)
        relative = scaled.double() / scale
        assert (relative - features).abs().max() < 1e-4 * features.abs().max()
