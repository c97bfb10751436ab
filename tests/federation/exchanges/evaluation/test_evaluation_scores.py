"""Scores are counts: right, all, and the sum of losses; they add up.

Tests of exchanges/evaluation/probabilities.py, too: calibration error, log-loss, Brier.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation import Score, evaluate
from federatedscope_ggeur.federation.exchanges.evaluation.scores import (
    BINS,
    Reliability,
    average_metrics,
)
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector
from federatedscope_ggeur.reporting.lines import absent_line


@pytest.fixture(params=[ModelSettings(), ModelSettings(hidden=4, dropout=0.5)])
def model(request):
    return build_model(3, 4, request.param).reset(torch.Generator().manual_seed(0))


def make_rows(n):
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(4, (n,), generator=generator)
    return torch.randn(n, 3, generator=generator), labels


def test_equals_a_plain_count(model):
    features, labels = make_rows(200)
    params = torch.randn(len(to_vector(model)))
    score = evaluate(model, params, features, labels)
    logits = model.at(params)(features)
    assert score.total == 200
    assert score.correct == sum(
        int(row.argmax()) == int(label) for row, label in zip(logits, labels)
    )
    mean_loss = F.cross_entropy(logits, labels).item()
    assert score.loss_sum / score.total == pytest.approx(mean_loss, rel=1e-5)
    assert score.accuracy == score.correct / 200


def test_many_rows_score_as_their_parts_do(model):
    features, labels = make_rows(20_000)
    params = to_vector(model)
    whole = evaluate(model, params, features, labels)
    parts = Score()
    for part in torch.arange(20_000).split(3_000):
        parts += evaluate(model, params, features[part], labels[part])
    assert (whole.correct, whole.total) == (parts.correct, parts.total)
    assert whole.loss_sum == pytest.approx(parts.loss_sum, rel=1e-6)


def test_no_rows_give_no_accuracy(model):
    score = evaluate(model, to_vector(model), *make_rows(0))
    assert score == Score(0, 0, 0.0)
    assert score.accuracy is None


def test_leaves_the_heads_own_weights_and_mode_alone(model):
    before = to_vector(model)
    model.train()
    evaluate(model, torch.zeros_like(before), *make_rows(5))
    assert torch.equal(to_vector(model), before)
    assert model.training


def test_a_loss_beyond_numbers_is_an_error_that_says_what_to_do(model):
    params = torch.full_like(to_vector(model), 3e38)
    with pytest.raises(GGEURError, match=r"diverged.*train\.optimizer\.lr"):
        evaluate(model, params, *make_rows(5))


class TestMetrics:
    def test_have_federatedscopes_names_and_meanings(self):
        assert Score(3, 4, 2.0).metrics("val") == {
            "val_acc": 0.75,
            "val_correct": 3,
            "val_loss": 2.0,
            "val_avg_loss": 0.5,
            "val_total": 4,
        }

    def test_weighted_are_averages_by_rows_but_for_counts(self):
        found = average_metrics(
            [{"val": Score(1, 1, 0.5)}, {"val": Score(1, 3, 2.5)}], "weighted_avg"
        )
        assert found == {
            "val_acc": pytest.approx((1 * 1 + 1 / 3 * 3) / 4),
            "val_correct": 1.0,
            "val_loss": pytest.approx((0.5 * 1 + 2.5 * 3) / 4),
            "val_avg_loss": pytest.approx((0.5 * 1 + 2.5 / 3 * 3) / 4),
            "val_total": 2.0,
        }

    def test_plain_averages_count_every_client_once(self):
        found = average_metrics(
            [{"val": Score(1, 1, 0.5)}, {"val": Score(0, 3, 2.5)}], "avg"
        )
        assert (found["val_acc"], found["val_loss"]) == (0.5, 1.5)

    def test_a_client_without_rows_of_a_split_does_not_count(self):
        scores = [{"val": Score(), "test": Score(1, 2, 1.0)}, {"val": Score(1, 1, 0.1)}]
        found = average_metrics(scores, "avg")
        assert (found["val_acc"], found["test_acc"]) == (1.0, 0.5)
        assert average_metrics([{"val": Score()}], "avg") == {}


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
        features, labels = make_rows(300)
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
        x, y = make_rows(20)
        score = evaluate(model, params, x, y, temperature=1.0, absent=(1,))
        few = min(int((y == 1).sum()), int((y != 1).sum()))
        assert score.told(few) == score
        kept_back = score.told(few + 1)
        assert kept_back.absent(1).rows == 0
        assert absent_line(kept_back.absent(1), few + 1) == (
            f"classes that nobody sent: 1; no client has {few + 1} or more test rows "
            "of them"
        )
        assert f"1, with {few} test rows (" in absent_line(score.absent(1), few)
        both = score + kept_back
        assert both.of_sent.rows == score.of_sent.rows + 20
