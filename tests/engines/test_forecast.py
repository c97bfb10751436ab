"""What a dry run foretells, beside what the run itself then sends."""

from __future__ import annotations

import pytest
import torch

from federatedscope_ggeur.engines.forecast import Traffic, forecast, set_up
from federatedscope_ggeur.engines.run import Run

AT_SERVER = ["federate.make_global_eval", True]
SAMPLED = ["federate.client_num", 12, "federate.sample_client_num", 3]
ELEVEN = ["federate.total_round_num", 11]  # the round's digits change


def both(config, *settings):
    """The forecast, and the results of the run."""
    cfg = config(*settings)
    found = forecast(set_up(cfg))
    return found, Run(cfg).follow(lambda record: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ELEVEN,
        [*ELEVEN, *SAMPLED, "eval.freq", 4],
        ["ggeur.augmentation", "fedmix", "ggeur.steps", "[]"],
        ["ggeur.base_method", "scaffold"],
        ["ggeur.space", "standard"],
        ["ggeur.base_method", "fedproto", "ggeur.steps", "[1]"],
        ["ggeur.calibrate", "ccvr", "ggeur.mlp_hidden_dim", 4],
        ["ggeur.closed_form", "lda"],
        ["ggeur.closed_form", "lda", "ggeur.init", "closed_form"],
    ],
    ids=lambda settings: " ".join(map(str, settings)),
)
def test_bytes_are_those_of_the_run(config, settings):
    found, results = both(config, *AT_SERVER, *settings)
    assert (found.total.up, found.total.down) == (
        results.final.bytes_up,
        results.final.bytes_down,
    )
    sent = found.round0
    round0 = results.round0
    assert sent.get("statistics", Traffic()).up == sum(
        round0.statistics_bytes_up.values()
    )
    for phase in ("geometry", "prototypes", "init_broadcast"):
        down = getattr(round0, f"{phase}_bytes_down")
        assert sent.get(phase, Traffic()).down == down
    assert sent.get("prepare", Traffic()).up == round0.prepare_bytes_up
    if results.rounds:
        first = sum(found.round.values(), Traffic())
        record = results.rounds[0]
        assert (first.up, first.down) == (record.bytes_up, record.bytes_down)
    if results.calibrated:
        after = sum(found.calibration.values(), Traffic())
        record = results.calibrated
        assert (after.up, after.down) == (record.bytes_up, record.bytes_down)
    assert found.scored == sum(record.evaluated for record in results.rounds)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [ELEVEN, ["federate.unseen_clients_rate", 0.4]])
def test_where_clients_score_bytes_differ_by_digits_of_their_losses(config, settings):
    cfg = ["federate.client_num", 6, "federate.make_global_eval", False, *settings]
    found, results = both(config, *cfg)
    assert found.total.down == results.final.bytes_down
    reports = 6 * len(results.rounds)
    assert abs(found.total.up - results.final.bytes_up) <= 8 * reports


def test_where_nothing_travels_but_scores(config):
    found, results = both(config, "ggeur.base_method", "local", "ggeur.steps", "[]")
    assert found.total.down == results.final.bytes_down


@pytest.mark.slow
def test_sets_are_those_that_are_trained_on(config):
    fresh = ["ggeur.noise", "fresh", "ggeur.privacy.min_samples", 1]
    cfg = config("federate.client_num", 5, *fresh)
    found, run = forecast(set_up(cfg)), Run(cfg)
    run.follow(lambda record: None)
    recipes = {k: client.recipe for k, client in run.engine.clients.items()}
    assert found.rows == {k: recipe.rows for k, recipe in recipes.items()}
    assert found.set_bytes == sum(recipe.nbytes for recipe in recipes.values())
    assert not found.same_every_round
    assert found.seconds.total > 0


def test_nothing_is_written_or_read(config, tmp_path):
    place = tmp_path / "checkpoint"
    kept = ["federate.save_to", place, "federate.restore_from", tmp_path / "none"]
    threads = torch.get_num_threads()
    before = sorted(tmp_path.rglob("*"))
    forecast(set_up(config("outdir", tmp_path / "exp", *kept)))
    assert sorted(tmp_path.rglob("*")) == before
    assert torch.get_num_threads() == threads
