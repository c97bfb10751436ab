"""Calibration after the last round (CCVR), by whole runs."""

import pytest
import torch

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.reporting import numbers, results_table

pytestmark = pytest.mark.slow

CALIBRATE = ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 50]
MLP = ["ggeur.mlp_hidden_dim", 8]


def follow(cfg):
    """The results, and the server's weights before and after calibration."""
    going, weights = Run(cfg), []
    results = going.follow(
        lambda record: weights.append(going.engine.server.params.clone())
    )
    return results, weights[-2], weights[-1]


@pytest.mark.parametrize("steps", [[], [1, 2]])
@pytest.mark.parametrize("model", [[], MLP], ids=["linear", "mlp"])
def test_rounds_are_those_without_and_the_head_is_another(config, steps, model):
    settings = ["ggeur.steps", steps, *model]
    plain = run(config(*settings))
    results, before, after = follow(config(*settings, *CALIBRATE))
    assert numbers(results)["rounds"] == numbers(plain)["rounds"]
    assert not torch.equal(before, after)
    assert results.final.head == "calibrated"
    assert results.final.accuracy == results.calibrated.accuracy
    assert "calibrated ccvr" in results_table(results)


def test_only_the_last_layer_changes(config):
    settings = [*MLP, *CALIBRATE]
    following = Run(config(*settings))
    heads = []
    following.follow(
        lambda record: heads.append(following.engine.server.params.clone())
    )
    model = following.engine.server.model
    before, after = (model.at(params) for params in heads[-2:])
    assert torch.equal(before.hidden.weight, after.hidden.weight)
    assert not torch.equal(before.classifier.weight, after.classifier.weight)


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


@pytest.mark.parametrize("model", [[], MLP], ids=["linear", "mlp"])
def test_without_any_statistics_the_error_says_what_to_do(config, model):
    settings = [*model, *CALIBRATE, "ggeur.steps", []]
    settings += ["ggeur.privacy.min_samples", 10000]
    following = Run(config(*settings))
    with pytest.raises(GGEURError, match=r"lower ggeur\.privacy\.min_samples"):
        following.follow(lambda record: None)
    assert len(following.history.rounds) == 3
    assert following.history.results("failed").final.head == "trained"


def test_a_class_withheld_by_all_keeps_its_weights(config):
    settings = [*CALIBRATE, "data.splitter_args", [{"alpha": 0.1}]]
    following = Run(config(*settings, "ggeur.privacy.min_samples", 5))
    heads = []
    results = following.follow(
        lambda record: heads.append(following.engine.server.params.clone())
    )
    left_out = results.calibrated.details["left_out"]
    model = following.engine.server.model
    before, after = (model.at(params).classifier.weight for params in heads[-2:])
    same = (before == after).all(dim=1)
    assert 0 < left_out < len(same)
    assert int(same.sum()) == left_out


def test_the_order_of_clients_changes_nothing(config):
    settings = [*MLP, *CALIBRATE, "federate.client_num", 7]
    settings += ["ggeur.privacy.min_samples", 1]
    expected = numbers(run(config(*settings)))
    backwards = run(config(*settings), order=lambda ks: sorted(ks, reverse=True))
    assert numbers(backwards) == expected


@pytest.mark.parametrize("model", [[], MLP], ids=["linear", "mlp"])
@pytest.mark.parametrize("rounds", [2, 3])
def test_a_stopped_or_finished_run_can_be_calibrated(config, tmp_path, rounds, model):
    whole = run(config(*model, *CALIBRATE))
    saved = ["federate.total_round_num", rounds, "federate.save_to", tmp_path / "point"]
    run(config(*model, *saved))
    restored = ["federate.restore_from", tmp_path / "point"]
    resumed = run(config(*model, *CALIBRATE, *restored))
    assert resumed.calibrated.accuracy == whole.calibrated.accuracy
