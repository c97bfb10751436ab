"""Scores are counts: right, all, and the sum of losses; they add up."""

import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation import Score, evaluate
from federatedscope_ggeur.heads import HeadSettings, build_head, to_vector


@pytest.fixture(params=[HeadSettings(), HeadSettings(hidden=4, dropout=0.5)])
def head(request):
    return build_head(3, 4, request.param).reset(torch.Generator().manual_seed(0))


def make_rows(n):
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(4, (n,), generator=generator)
    return torch.randn(n, 3, generator=generator), labels


def test_equals_a_plain_count(head):
    features, labels = make_rows(200)
    params = torch.randn(len(to_vector(head)))
    score = evaluate(head, params, features, labels)
    logits = head.at(params)(features)
    assert score.total == 200
    assert score.correct == sum(
        int(row.argmax()) == int(label) for row, label in zip(logits, labels)
    )
    mean_loss = F.cross_entropy(logits, labels).item()
    assert score.loss_sum / score.total == pytest.approx(mean_loss, rel=1e-5)
    assert score.accuracy == score.correct / 200


def test_many_rows_score_as_their_parts_do(head):
    features, labels = make_rows(20_000)
    params = to_vector(head)
    whole = evaluate(head, params, features, labels)
    parts = Score()
    for part in torch.arange(20_000).split(3_000):
        parts += evaluate(head, params, features[part], labels[part])
    assert (whole.correct, whole.total) == (parts.correct, parts.total)
    assert whole.loss_sum == pytest.approx(parts.loss_sum, rel=1e-6)


def test_no_rows_give_no_accuracy(head):
    score = evaluate(head, to_vector(head), *make_rows(0))
    assert score == Score(0, 0, 0.0)
    assert score.accuracy is None


def test_leaves_the_heads_own_weights_and_mode_alone(head):
    before = to_vector(head)
    head.train()
    evaluate(head, torch.zeros_like(before), *make_rows(5))
    assert torch.equal(to_vector(head), before)
    assert head.training


def test_a_loss_beyond_numbers_is_an_error_that_says_what_to_do(head):
    params = torch.full_like(to_vector(head), 3e38)
    with pytest.raises(GGEURError, match=r"diverged.*train\.optimizer\.lr"):
        evaluate(head, params, *make_rows(5))
