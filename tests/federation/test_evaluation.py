"""Scores are counts: right, all, and the sum of losses; they add up."""

import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation import Score, evaluate
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector


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
