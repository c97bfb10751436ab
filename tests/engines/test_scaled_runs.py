"""Runs whose trained head has a temperature, chosen by validation rows."""

import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur import Results
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.exchanges.closed_form.leave_one_out import (
    LossQuery,
)
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    LEAST_VALIDATION,
    EvaluationClient,
)
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.models.closed_forms import temperatures
from federatedscope_ggeur.reporting import results_table

pytestmark = pytest.mark.slow

# More than 150 of the 324 rows are for validation.
VALIDATED = [
    "data.splitter", "domain",
    "data.splitter_args", [],
    "data.splits", [0.3, 0.55, 0.15],
    "ggeur.privacy.min_samples", 1,
    "eval.split", ["test", "val"],
    "eval.best_res_update_round_wise_key", "val_loss",
    "early_stop.patience", 0,
]  # fmt: skip
ONE_SHOT = ["ggeur.closed_form", "lda", "ggeur.privacy.min_samples", 1]
NONE = ["ggeur.temperature", "none"]


def finished(cfg):
    going = Run(cfg)
    return going.follow(lambda record: None), going


def mean_loss(model, rows, temperature):
    logits = model(rows.features).double().detach()
    return float(F.cross_entropy(logits / temperature, rows.labels))


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["federate.make_global_eval", True],
        ["ggeur.steps", []],
        ["ggeur.space", "standard"],
    ],
    ids=str,
)
def test_it_is_the_best_on_the_validation_rows_and_changes_no_class(config, more):
    results, going = finished(config(*VALIDATED, *more))
    without = run(config(*VALIDATED, *more, *NONE))
    found = results.temperature_scaling
    rows = [held.val for held in going.data.clients]
    assert found.rows == sum(map(len, rows)) >= LEAST_VALIDATION

    def on_validation(temperature):
        each = [len(r) * mean_loss(without.model, r, temperature) for r in rows]
        return sum(each) / found.rows

    assert on_validation(1.0) == pytest.approx(found.loss_before, abs=0.01)
    best = on_validation(found.temperature)
    assert best <= on_validation(1.0)
    assert best <= min(map(on_validation, temperatures(16.0))) + 0.01
    points = torch.cat([r.features for r in rows])
    torch.testing.assert_close(
        results.model(points) * found.temperature, without.model(points),
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip
    assert results.final.accuracy == without.final.accuracy
    assert [r.loss for r in results.rounds] == [r.loss for r in without.rounds]
    assert results.final.calibrated_by == "validation"
    after, before = found.probabilities.after, found.probabilities.before
    assert results.final.probabilities == found.probabilities
    assert before == pytest.approx(without.final.probabilities.after, abs=1e-3)
    assert after != before
    assert "calibrated by validation rows" in results_table(results)
    assert Results.from_json(results.to_json()) == results


@pytest.mark.parametrize(
    "more",
    [
        ["data.splits", [0.4, 0.4, 0.2]],
        ["eval.split", ["test"]],
        ["ggeur.base_method", "local"],
        ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 20],
        NONE,
    ],
    ids=str,
)
def test_else_nothing_is_asked(config, more):
    going, asked = Run(config(*VALIDATED, *more)), set()
    going.engine.listen = lambda request, replies: asked.add(request.kind.name)
    results = going.follow(lambda record: None)
    assert "validation_losses" not in asked
    assert results.temperature_scaling is None
    assert results.final.calibrated_by is None


def test_validation_rows_go_before_the_start(config):
    settings = ["ggeur.closed_form", "lda", "ggeur.init", "closed_form"]
    results = run(config(*VALIDATED, *settings))
    assert results.final.calibrated_by == "validation"
    found = results.temperature_scaling
    assert found.loss <= found.loss_before


def test_a_one_shot_head_that_is_kept_has_its_own(config):
    settings = ["ggeur.closed_form", "lda", "ggeur.keep", "best"]
    settings += ["ggeur.init", "closed_form", "train.optimizer.lr", 1e-9]
    results = run(config(*VALIDATED, *settings))
    assert results.final.head == "closed_form"
    assert results.temperature_scaling is None
    assert results.final.calibrated_by == "leave_one_out"


@pytest.mark.parametrize("rounds", [2, 3])
def test_a_run_that_goes_on_finds_the_same(config, tmp_path, rounds):
    whole = run(config(*VALIDATED))
    point = tmp_path / "point"
    saved = ["federate.total_round_num", rounds, "federate.save_to", point]
    run(config(*VALIDATED, *saved))
    resumed = run(config(*VALIDATED, "federate.restore_from", point))
    assert resumed.final.head_sha256 == whole.final.head_sha256
    assert resumed.final.probabilities == whole.final.probabilities


def test_a_run_that_stops_early_has_one(config):
    stopping = ["early_stop.patience", 1, "early_stop.delta", 1e6]
    results = run(config(*VALIDATED, *stopping))
    assert results.stopped_early == 2
    assert results.final.calibrated_by == "validation"


def test_a_client_answers_for_one_head_and_enough_rows_alone(config):
    going = Run(config(*VALIDATED, "ggeur.privacy.min_samples", 4))
    engine = going.engine
    held = going.data.clients[0]
    params = engine.server.head_params()
    query = LossQuery(0, temperatures(16.0))
    side = EvaluationClient(engine.clients[1], {"val": held.val})
    answer = side.validation_losses(Broadcast(4, params), query)
    assert answer.rows == len(held.val)
    model = engine.server.scored_model.at(params)
    wanted = len(held.val) * mean_loss(model, held.val, query.temperatures[0])
    assert float(answer.losses[0]) == pytest.approx(64 * wanted, abs=0.51)
    with pytest.raises(MessageError, match="asked for before, for another head"):
        side.validation_losses(Broadcast(4, params + 1), query)
    for rows, told in ((3, 0), (4, 4)):
        side = EvaluationClient(
            engine.clients[1], {"val": held.val.select(range(rows))}
        )
        answer = side.validation_losses(Broadcast(4, params), query)
        assert answer.rows == told
        assert bool(answer.losses.any()) == bool(told)


def test_every_client_with_test_rows_has_an_accuracy(config):
    results = run(config("federate.client_num", 6))
    each = results.final.client_accuracy
    assert sorted(map(int, each)) == [1, 2, 3, 4, 5, 6]
    worst = results.final.worst_client
    assert min(each.values()) == each[str(worst.client)] == worst.accuracy
    assert sum(each.values()) / 6 == pytest.approx(worst.mean)
    one_shot = run(config("federate.client_num", 6, *ONE_SHOT))
    assert one_shot.closed_form.client_accuracy == one_shot.final.client_accuracy
    assert len(one_shot.final.client_accuracy) == 6
