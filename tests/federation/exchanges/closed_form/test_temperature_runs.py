"""Runs whose heads have a temperature: chosen by rows left out, or by validation rows.

What a client tells for it is said by tests/federation/exchanges/closed_form/
test_temperature_answers.py and evaluation/test_validation_losses.py.
"""

import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur import Results
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    LEAST_VALIDATION,
)
from federatedscope_ggeur.models.closed_forms import temperatures
from federatedscope_ggeur.reporting import results_table

ALL = ["ggeur.privacy.min_samples", 1]
SIX = ["federate.client_num", 6]
IID = [*SIX, "data.splitter", "iid", "data.splitter_args", []]
LDA, START = ["ggeur.closed_form", "lda", *ALL], ["ggeur.init", "closed_form"]
NONE = ["ggeur.temperature", "none"]
#: Rows of which heads are not always right.
DIGITS = ["data.type", "digits_quickstart@ggeur", "data.splits", [0.3, 0.0, 0.7]]
# More than 150 of the 324 rows are for validation.
VALIDATED = [
    "data.splitter", "domain",
    "data.splitter_args", [],
    "data.splits", [0.3, 0.55, 0.15],
    *ALL,
    "eval.split", ["test", "val"],
    "eval.best_res_update_round_wise_key", "val_loss",
    "early_stop.patience", 0,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lda", "ridge", "mixture"])
def test_the_log_loss_of_left_out_rows_falls_and_no_class_changes(config, kind):
    settings = ["ggeur.closed_form", kind, *ALL, *IID, *DIGITS]
    with_it = run(config(*settings, "ggeur.confidences", True))
    without = run(config(*settings, *NONE))
    details = with_it.closed_form.details
    assert details["left_out_loss"] <= details["left_out_loss_before"]
    assert with_it.final.accuracy == without.final.accuracy
    assert with_it.final.calibrated_by == "leave_one_out"
    assert without.final.calibrated_by is None
    before = with_it.final.probabilities.before
    assert before.ece == pytest.approx(without.final.probabilities.after.ece, abs=1e-3)
    after = with_it.final.probabilities.after
    assert after.log_loss <= before.log_loss
    assert kind != "ridge" or after.log_loss < before.log_loss / 2
    assert Results.from_json(with_it.to_json()).final == with_it.final
    assert "calibrated by rows left out" in results_table(with_it)
    assert "not calibrated" in results_table(without)
    bins = details["confidence_bins"]
    assert len(bins) == 65
    assert sum(bins) == details["temperature_rows"]
    assert "confidence_bins" not in without.closed_form.details


def test_training_starts_from_the_divided_head(config):
    settings = [*LDA, *START, *IID, *DIGITS, "ggeur.lda.shrinkage", 0.3]
    settings += ["ggeur.steps", [], "ggeur.space", "raw"]
    heads, t = [], 1.0
    for more in ([], NONE):
        going = Run(config(*settings, *more))
        next(records := going.engine.run())
        heads.append(going.engine.server.params)
        t = t if more else going.history.round0.closed_form.details["temperature"]
        list(records)
        kept = going.history.results().final.calibrated_by
        assert kept == (None if more else "start")
    assert t != 1
    torch.testing.assert_close(t * heads[0], heads[1], rtol=1e-5, atol=1e-5)


def mean_loss(model, rows, temperature):
    logits = model(rows.features).double().detach()
    return float(F.cross_entropy(logits / temperature, rows.labels))


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ["federate.make_global_eval", True],
        ["ggeur.space", "standard"],
        ["ggeur.mlp_hidden_dim", 8],
    ],
    ids=str,
)
def test_it_is_the_best_on_the_validation_rows_and_changes_no_class(config, more):
    going = Run(config(*VALIDATED, *more))
    results = going.follow(lambda record: None)
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


@pytest.mark.parametrize(
    ("more", "head", "by"),
    [
        ([*LDA, *START], "trained", "validation"),
        (
            [*LDA, *START, "ggeur.keep", "best", "train.optimizer.lr", 1e-9],
            "closed_form",
            "leave_one_out",
        ),
        (["early_stop.patience", 1, "early_stop.delta", 1e6], "trained", "validation"),
    ],
    ids=["a start", "a head that is kept", "an early stop"],
)
def test_the_head_that_is_left_has_its_own(config, more, head, by):
    results = run(config(*VALIDATED, *more))
    assert (results.final.head, results.final.calibrated_by) == (head, by)
    assert (results.temperature_scaling is None) == (by == "leave_one_out")


@pytest.mark.parametrize("settings", [[], LDA], ids=str)
def test_every_client_with_test_rows_has_an_accuracy(config, settings):
    final = run(config(*SIX, *settings)).final
    each = final.client_accuracy
    assert sorted(map(int, each)) == [1, 2, 3, 4, 5, 6]
    worst = final.worst_client
    assert min(each.values()) == each[str(worst.client)] == worst.accuracy
    assert sum(each.values()) / 6 == pytest.approx(worst.mean)
