"""Scores are counts: right, all, and the sum of losses; they add up.

Tests of exchanges/evaluation/probabilities.py, too: calibration error, log-loss, Brier.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_bytes import CLASSES, DIM, Federation, make_client_data, make_rows
from changed_rows import changed
from early_stop_oracle import LARGER_IS_BETTER, stops_at
from outcomes import finished
from torch.nn import functional as F

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.engines.run import load_federated_data, run
from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation import Score, evaluate
from federatedscope_ggeur.federation.exchanges.closed_form.messages import LossQuery
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EVALUATE,
    EvaluationClient,
)
from federatedscope_ggeur.federation.exchanges.evaluation.scores import (
    BINS,
    Reliability,
    ScoreReport,
    average_metrics,
)
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector
from federatedscope_ggeur.models.closed_forms import temperatures
from federatedscope_ggeur.reporting import results_table
from federatedscope_ggeur.reporting.lines import absent_line


@pytest.fixture(params=[ModelSettings(), ModelSettings(hidden=4, dropout=0.5)])
def model(request):
    return build_model(DIM, CLASSES, request.param).reset(
        torch.Generator().manual_seed(0)
    )


def test_equals_a_plain_count(model):
    features, labels = make_rows(200, seed=1)
    params = torch.randn(len(to_vector(model)))
    score = evaluate(model, params, features, labels)
    logits = model.at(params)(features)
    assert score.total == 200
    assert score.correct == int((logits.argmax(dim=1) == labels).sum())
    mean_loss = F.cross_entropy(logits, labels).item()
    assert score.loss_sum / score.total == pytest.approx(mean_loss, rel=1e-5)
    assert score.accuracy == score.correct / 200


def test_many_rows_score_as_their_parts_do(model):
    features, labels = make_rows(20_000, seed=1)
    params = to_vector(model)
    whole = evaluate(model, params, features, labels)
    parts = Score()
    for part in torch.arange(20_000).split(3_000):
        parts += evaluate(model, params, features[part], labels[part])
    assert (whole.correct, whole.total) == (parts.correct, parts.total)
    assert whole.loss_sum == pytest.approx(parts.loss_sum, rel=1e-6)


def test_no_rows_give_no_accuracy(model):
    score = evaluate(model, to_vector(model), *make_rows(0, seed=1))
    assert score == Score(0, 0, 0.0)
    assert score.accuracy is None


def test_leaves_the_heads_own_weights_and_mode_alone(model):
    before = to_vector(model)
    model.train()
    evaluate(model, torch.zeros_like(before), *make_rows(5, seed=1))
    assert torch.equal(to_vector(model), before)
    assert model.training


def test_a_loss_beyond_numbers_is_an_error_that_says_what_to_do(model):
    params = torch.full_like(to_vector(model), 3e38)
    with pytest.raises(GGEURError, match=r"diverged.*train\.optimizer\.lr"):
        evaluate(model, params, *make_rows(5, seed=1))


BOTH = [{"val": Score(1, 1, 0.5)}, {"val": Score(1, 3, 2.5)}]
#: A client without rows of a split does not count.
APART = [{"val": Score(), "test": Score(1, 2, 1.0)}, {"val": Score(1, 1, 0.1)}]


@pytest.mark.parametrize(
    ("scores", "how", "wanted"),
    [
        (BOTH, "weighted_avg", {"acc": 2 / 4, "loss": 2.0, "avg_loss": 3 / 4}),
        (BOTH, "weighted_avg", {"correct": 1.0, "total": 2.0}),
        (BOTH, "avg", {"acc": 2 / 3, "loss": 1.5}),
        (APART, "avg", {"acc": 1.0, "total": 1.0}),
        ([{"val": Score()}], "avg", {}),
    ],
)
def test_averages_over_clients_have_federatedscopes_names(scores, how, wanted):
    found = average_metrics(scores, how)
    assert bool(found) == bool(wanted)
    for name, value in wanted.items():
        assert found[f"val_{name}"] == pytest.approx(value)


def made(n, size=3.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (n,), generator=generator)
    logits = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    logits[torch.arange(n), labels] += 1
    return size * logits, labels


def by_hand(logits, labels):
    """ECE as Guo et al. define it, row by row."""
    p = 0.999 * torch.softmax(logits, 1).numpy() + 0.001 / logits.shape[1]
    sure, hit = p.max(1), p.argmax(1) == labels.numpy()
    ece = 0.0
    for b in range(BINS):
        inside = (sure > b / BINS) & (sure <= (b + 1) / BINS)
        if inside.any():
            ece += inside.mean() * abs(hit[inside].mean() - sure[inside].mean())
    own = p[np.arange(len(p)), labels.numpy()]
    errors = p - np.eye(p.shape[1])[labels.numpy()]
    return ece, -np.log(own).mean(), (errors**2).sum(1).mean()


@pytest.mark.parametrize("size", [0.1, 1.0, 10.0])
def test_equals_its_definition_up_to_rounding(size):
    logits, labels = made(2000, size)
    found = Reliability.of(logits, labels).scores()
    ece, loss, brier = by_hand(logits, labels)
    assert found.ece == pytest.approx(ece, abs=BINS / 128 / 2000)
    assert found.log_loss == pytest.approx(loss, abs=1e-5)
    assert found.brier == pytest.approx(brier, abs=1e-5)


def test_parts_add_up():
    logits, labels = made(300)
    parts = [Reliability.of(logits[i::3], labels[i::3]) for i in range(3)]
    whole = Reliability.of(logits, labels)
    summed = sum(parts[1:], parts[0])
    assert torch.equal(summed.bins[:2], whole.bins[:2])
    assert (summed.bins[2] - whole.bins[2]).abs().max() <= 2
    assert summed.scores().log_loss == pytest.approx(whole.scores().log_loss, abs=1e-3)


def test_of_no_rows_there_is_nothing_to_say():
    none = Reliability.of(*made(0))
    assert none.scores() is None
    assert none + none == none


def test_a_row_that_is_certain_and_wrong_stays_finite():
    logits = torch.tensor([[1e308, 0.0]], dtype=torch.float64)
    found = Reliability.of(logits, torch.tensor([1])).scores()
    assert np.isfinite([found.ece, found.log_loss, found.brier]).all()
    assert found.ece == 1.0


class TestClassesThatNobodySent:
    def test_their_rows_are_told_apart_over_any_parts(self, model):
        features, labels = make_rows(300, seed=1)
        params, absent = torch.randn(len(to_vector(model))), (1, 3)
        parts = Score()
        for part in torch.arange(300).split(70):
            parts += evaluate(
                model,
                params,
                features[part],
                labels[part],
                temperature=1.0,
                absent=absent,
            )
        sent = (labels == 0) | (labels == 2)
        others = evaluate(model, params, features[sent], labels[sent], temperature=1.0)
        found = parts.absent(2)
        assert (found.classes, found.rows) == (2, int((~sent).sum()))
        assert found.accuracy_of_others == others.accuracy
        assert found.accuracy == (parts.correct - others.correct) / found.rows
        assert found.others.log_loss == pytest.approx(
            others.probabilities.after.log_loss, abs=0.02
        )
        assert parts.absent(0) is None

    def test_a_few_rows_count_with_the_others(self, model):
        params = to_vector(model)
        x, y = make_rows(20, seed=1)
        score = evaluate(model, params, x, y, temperature=1.0, absent=(1,))
        few = min(int((y == 1).sum()), int((y != 1).sum()))
        assert score.told(few) == score
        kept_back = score.told(few + 1)
        assert kept_back.absent(1).rows == 0
        told_of_none = absent_line(kept_back.absent(1), few + 1)
        assert f"1; no client has {few + 1} or more test rows" in told_of_none
        assert f"1, with {few} test rows (" in absent_line(score.absent(1), few)
        both = score + kept_back
        assert both.of_sent.rows == score.of_sent.rows + 20


# What a client tells of its validation rows, and of rows of classes nobody sent.


@pytest.fixture
def federation():
    return Federation(make_client_data(), min_samples=4).round0()


@pytest.fixture
def rows():
    return Embeddings(*make_rows(40, seed=9), "domain 1")


def test_a_client_answers_for_one_head_and_enough_rows_alone(federation, rows):
    server, client = federation.server, federation.clients[1]
    params = server.head_params()
    query = LossQuery((0,), (temperatures(16.0),))
    side = EvaluationClient(client, {"val": rows})
    answer = side.validation_losses(Broadcast(4, params), query)
    assert answer.rows == len(rows)
    logits = server.scored_model.at(params)(rows.features).double()
    logs = F.cross_entropy(
        logits / query.temperatures[0][0], rows.labels, reduction="none"
    )
    wanted = -(0.999 * (-logs).exp() + 0.001 / logits.shape[1]).log().sum()
    assert float(answer.losses[0, 0]) == pytest.approx(64 * float(wanted), abs=0.51)
    with pytest.raises(MessageError, match="asked for before, for another head"):
        side.validation_losses(Broadcast(4, params + 1), query)
    for few, told in ((3, 0), (4, 4)):
        side = EvaluationClient(client, {"val": rows.select(range(few))})
        answer = side.validation_losses(Broadcast(4, params), query)
        assert answer.rows == told
        assert bool(answer.losses.any()) == bool(told)


def test_a_client_tells_rows_apart_for_one_list_of_classes_alone(federation, rows):
    client, params = federation.clients[1], federation.server.head_params()
    side = EvaluationClient(client, {"test": rows})
    asked = Broadcast(4, params, absent=(0,))
    assert Broadcast.from_bytes(asked.to_bytes(), client.schema).absent == (0,)
    report = side.evaluate(asked)
    told = report.scores["test"].of_sent
    assert told.rows == int((rows.labels != 0).sum()) < 40
    data = report.to_bytes()
    again = ScoreReport.from_bytes(data, client.schema, "client 1")
    assert again.scores == report.scores
    side.evaluate(Broadcast(5, params))
    with pytest.raises(MessageError, match="other classes were told apart before"):
        side.evaluate(Broadcast(6, params, absent=(1,)))


def test_a_restart_opens_no_other_list_of_classes(federation, rows):
    """Round 0 is answered again after a restart, also if it named no classes."""
    params = federation.server.head_params()
    asked = EVALUATE, (Broadcast(0, params).to_bytes(),)
    for _ in range(2):
        handler = federation.new_handler(1, {"test": rows})
        handler.resume([asked], {})
        with pytest.raises(MessageError, match="told apart before"):
            handler.answer(EVALUATE, (Broadcast(4, params, absent=(1,)).to_bytes(),))


# Validation rows: what they choose, what they stop, and that test rows do neither.


KEY = "eval.best_res_update_round_wise_key"
VALIDATED = [
    "data.splits", [0.5, 0.2, 0.3],
    "eval.split", ["test", "val"],
    KEY, "val_loss",
    "early_stop.patience", 0,
    "federate.total_round_num", 6,
]  # fmt: skip


def permuted(data):
    """`data` as far as training and validation go; every client's test labels mixed."""
    generator = torch.Generator().manual_seed(5)

    def mixed(rows: Embeddings) -> Embeddings:
        order = torch.randperm(len(rows), generator=generator)
        return replace(rows, labels=rows.labels[order])

    return changed(data, mixed, ["test"])


@pytest.mark.parametrize(
    "settings",
    [
        [KEY, "test_acc"],
        ["early_stop.patience", 1, "train.optimizer.lr", 0.3],
        ["federate.make_global_eval", True],
        ["ggeur.base_method", "local"],
    ],
    ids=str,
)
def test_labels_of_test_rows_choose_nothing(config, settings):
    cfg = config(*VALIDATED, *settings)
    data = load_federated_data(cfg)
    before, after = run(cfg, data), run(cfg, permuted(data))
    assert before.final.avg != after.final.avg
    first, second = before.final.chosen, after.final.chosen
    assert (first.round, first.key, first.value) == (
        second.round, second.key, second.value,
    )  # fmt: skip
    assert first.key.startswith("val_")
    assert before.stopped_early == after.stopped_early
    assert len(before.rounds) == len(after.rounds)


def test_the_chosen_round_is_the_first_of_the_best(config):
    results = run(config(*VALIDATED, "train.optimizer.lr", 0.5))
    losses = [record.metrics["val_loss"] for record in results.rounds]
    best = results.rounds[int(np.argmin(losses))]
    chosen = results.final.chosen
    assert (chosen.round, chosen.value) == (best.round, min(losses))
    assert (chosen.accuracy, chosen.avg) == (best.accuracy, best.avg)
    assert f"round {chosen.round} by val_loss" in results_table(results)


def test_validation_rows_are_scored_and_not_trained_on(config):
    """They can be anything: only what they score changes."""
    cfg = config(*VALIDATED)
    data = load_federated_data(cfg)
    spoilt = changed(data, lambda r: replace(r, features=50 * r.features), ["val"])
    (before, here), (after, there) = finished(cfg, data), finished(cfg, spoilt)
    server = before.engine.server
    assert torch.equal(server.params, after.engine.server.params)
    one, two = here.rounds[-1].metrics, there.rounds[-1].metrics
    assert one["val_loss"] != two["val_loss"]
    assert one["test_loss"] == two["test_loss"]
    held = [client.val for client in data.clients]
    scores = [evaluate(server.model, server.params, v.features, v.labels) for v in held]
    wanted = average_metrics([{"val": score} for score in scores], "weighted_avg")
    assert {name: one[name] for name in wanted} == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("key", "patience", "delta", "mode", "lr", "by_server"),
    [
        ("val_loss", 1, 0.0, "best", 3.0, False),
        ("val_acc", 2, 0.001, "mean", 0.5, False),
        ("train_loss", 3, 50.0, "best", 0.05, True),
    ],
)
def test_a_run_ends_where_the_plain_rule_says(
    config, key, patience, delta, mode, lr, by_server
):
    """The rule itself is said by tests/federation/test_optimizers.py."""
    common = [*VALIDATED, "eval.split", ["train", "test", "val"], KEY, key]
    common += ["train.optimizer.lr", lr, "federate.total_round_num", 12]
    common += ["federate.make_global_eval", by_server]
    common += ["early_stop.patience", patience, "early_stop.delta", delta]
    common += ["early_stop.improve_indicator_mode", mode]
    stopped = run(config(*common))
    curve = [record.metrics[key] for record in stopped.rounds]
    larger = LARGER_IS_BETTER[key.partition("_")[2]]
    wanted = stops_at(curve, patience, delta, mode, larger)
    assert len(curve) == stopped.stopped_early == wanted < 12
    assert f"stopped early, after round {wanted}" in results_table(stopped)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ([], "data.splits keeps no rows for validation"),
        (["data.splits", [0.5, 0.2, 0.3]], "eval.split does not hold val"),
    ],
)
def test_without_rows_fs_s_default_key_finds_nothing_and_a_note_says_so(
    config, settings, why
):
    plain = [KEY, "val_loss", "early_stop.patience", 2, "eval.split", ["test"]]
    going, results = finished(config(*plain, *settings))
    note = f"there is no val_loss ({why}), so early_stop.patience 2 does nothing"
    assert f"note: {note}" in going.describe()
    assert results.notes[0] == note
    assert (results.final.chosen, results.stopped_early) == (None, None)


def test_nothing_stops_what_is_not_averaged(config):
    settings = ["early_stop.patience", 1, "train.optimizer.lr", 3.0]
    results = run(config(*VALIDATED, *settings, "eval.report", ["raw"]))
    assert len(results.rounds) == 6
    assert "eval.report holds neither" in results.notes[0]
