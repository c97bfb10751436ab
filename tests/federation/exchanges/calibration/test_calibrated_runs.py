"""Calibration after the last round (CCVR), by whole runs."""

import pytest
import torch

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.reporting import numbers, results_table

CALIBRATE = ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 50]
MLP = ["ggeur.mlp_hidden_dim", 8]


def follow(cfg):
    """The results, and the server's model before and after calibration."""
    going, weights = Run(cfg), []
    results = going.follow(
        lambda record: weights.append(going.engine.server.params.clone())
    )
    model = going.engine.server.model
    return results, *(model.at(params) for params in weights[-2:])


@pytest.mark.slow
@pytest.mark.parametrize("model", [[], MLP], ids=["linear", "mlp"])
def test_rounds_are_those_without_and_only_the_last_layer_changes(config, model):
    plain = run(config(*model))
    results, before, after = follow(config(*model, *CALIBRATE))
    assert numbers(results)["rounds"] == numbers(plain)["rounds"]
    assert not torch.equal(before.classifier.weight, after.classifier.weight)
    if model:
        assert torch.equal(before.hidden.weight, after.hidden.weight)
    assert results.final.head == "calibrated"
    assert results.final.accuracy == results.calibrated.accuracy
    assert "calibrated ccvr" in results_table(results)


@pytest.mark.slow
def test_a_linear_head_reuses_the_statistics_of_round_0(config):
    asked = run(config("ggeur.steps", [], *CALIBRATE))
    reused = run(config("ggeur.steps", [1, 2], *CALIBRATE))
    by_server = ["federate.make_global_eval", True]
    assert reused.calibrated.bytes_up < asked.calibrated.bytes_up
    silent = run(config("ggeur.steps", [1, 2], *by_server, *CALIBRATE))
    assert silent.calibrated.bytes_up == 0


def test_it_helps_where_labels_are_skewed(config):
    settings = ["data.splitter", "lda", "data.splitter_args", [{"alpha": 0.1}]]
    settings += ["federate.client_num", 9, "ggeur.steps", [], *CALIBRATE]
    settings += ["ggeur.privacy.min_samples", 1]
    results = run(config(*settings))
    assert results.calibrated.avg > results.rounds[-1].avg


@pytest.mark.slow
def test_without_any_statistics_the_trained_head_is_left(config):
    settings = [*CALIBRATE, "ggeur.steps", [], "ggeur.privacy.min_samples", 10000]
    following = Run(config(*settings))
    with pytest.raises(GGEURError, match=r"lower ggeur\.privacy\.min_samples"):
        following.follow(lambda record: None)
    assert len(following.history.rounds) == 3
    assert following.history.results("failed").final.head == "trained"


def test_a_class_withheld_by_all_keeps_its_weights(config):
    settings = [*CALIBRATE, "data.splitter_args", [{"alpha": 0.1}]]
    results, *models = follow(config(*settings, "ggeur.privacy.min_samples", 5))
    left_out = results.calibrated.details["left_out"]
    before, after = (model.classifier.weight for model in models)
    same = (before == after).all(dim=1)
    assert 0 < left_out < len(same)
    assert int(same.sum()) == left_out
