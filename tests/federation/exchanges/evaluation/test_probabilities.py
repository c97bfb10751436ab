"""How honest probabilities are: expected calibration error, log-loss, Brier score."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.federation.exchanges.evaluation.probabilities import (
    BINS,
    Reliability,
)


def made(n, size=3.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (n,), generator=generator)
    logits = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    logits[torch.arange(n), labels] += 1
    return size * logits, labels


def by_hand(logits, labels):
    """ECE as Guo et al. define it, row by row."""
    p = torch.softmax(logits, 1).numpy()
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
