"""Runs whose clients make one-shot heads of their own, and keep them."""

import numpy as np
import pytest

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.predictor.left_models import LeftModels
from federatedscope_ggeur.reporting import write_run

OWN = ["ggeur.closed_form", "lda", "ggeur.personal.head", "means"]
OWN += ["ggeur.privacy.min_samples", 1]


def finished(config, *settings):
    going = Run(config(*settings))
    return going, going.follow(lambda record: None)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "standardize"), [("lda", True), ("auto", False)])
def test_what_is_scored_is_what_predicts(config, kind, standardize):
    own = [*OWN, "ggeur.closed_form", kind, "ggeur.lda.standardize", standardize]
    going, results = finished(config, *own)
    found = results.round0.personal
    for client in going.data.clients:
        test = client.test
        found_classes = results.predict(test.features, clients=client.number)
        right = found_classes == test.labels.numpy()
        assert right.mean() == pytest.approx(found.accuracy[client.domain], abs=1e-12)
    plain = run(config(*own, "ggeur.personal.head", "none"))
    features = going.data.clients[0].test.features
    np.testing.assert_array_equal(
        results.predict_proba(features), plain.predict_proba(features)
    )
    assert plain.round0.personal is None
    assert results.final.accuracy == plain.final.accuracy


@pytest.mark.slow
def test_the_folder_has_a_head_for_each_client(config, tmp_path):
    going, results = finished(config, *OWN)
    history = going.history
    assert history.own_models().tensors.keys() == {1, 2, 3}
    assert results.round0.personal.bytes_up > 0
    write_run(tmp_path, results, history.head_bytes(), history.own_bytes())
    left = LeftModels(tmp_path)
    features = going.data.clients[1].test.features
    models = left.on(features.shape[1])
    numbers = left.numbers(2, len(features))
    mine = Model.probabilities(models.logits(features, numbers)).numpy()
    np.testing.assert_array_equal(mine, results.predict_proba(features, clients=2))
    assert left.numbers(None, 3).tolist() == [0, 0, 0]


@pytest.mark.slow
def test_own_priors_are_scored_on_both_mixes(config):
    found = run(config(*OWN, "ggeur.personal.prior", "own")).round0.personal
    assert found.prior == "own"
    assert 0 < found.uniform <= 1
    assert 0 < found.avg <= 1


def test_nothing_is_made_beside_a_trained_head(config, caplog):
    trained = ["ggeur.init", "closed_form", "federate.total_round_num", 1]
    results = run(config(*OWN, *trained))
    assert results.round0.personal is None
    assert "no client has its own head" in caplog.text
