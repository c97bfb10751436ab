"""A13: rows of withheld classes in what clients answer about heads."""

import pytest
import torch
from planted import CLOCK, gaussian, only, transcript, truth_of, uploaded

from federatedscope_ggeur.extras.audit.answers import a13, likely, numbers_of
from federatedscope_ggeur.extras.audit.base import Clock
from federatedscope_ggeur.federation.exchanges.closed_form.choice import (
    HitCounts,
    LeaveOneOut,
    LogLosses,
    LossQuery,
)
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.closed_forms import (
    Components,
    Rows,
    left_out_hits,
    left_out_losses,
    log_losses,
    temperatures,
)

CLASSES, DIM, LEAST, CLIENTS = 8, 12, 5, 6
FORM = CLOSED_FORMS["lda"]()
QUERY = LossQuery((2, 9), (temperatures(4.0), temperatures(2.0)))


def rows_of(labels, seed):
    return 0.7 * gaussian(5, CLASSES, DIM)[labels] + gaussian(seed, len(labels), DIM)


def federation(few=1):
    """Six clients have 10 rows of six classes each, and `few` of the two others; 25
    rows of each class are nobody's."""
    clients = {}
    for k in range(1, CLIENTS + 1):
        few_of = {k % CLASSES, (k + 1) % CLASSES}
        sizes = [few if c in few_of else 10 for c in range(CLASSES)]
        y = torch.repeat_interleave(torch.arange(CLASSES), torch.tensor(sizes))
        clients[k] = rows_of(y, k), y
    y = torch.arange(CLASSES).repeat(25)
    return clients, truth_of(clients, (rows_of(y, 99), y), CLASSES)


def sent(clients):
    """Their statistics, and the components of all."""
    uploads = uploaded(clients, LEAST, CLASSES)
    parts = [Components.of_client(u, k, "a", ("a",)) for k, u in uploads.items()]
    return uploads, LeaveOneOut(Components.joined(parts).merged("class"))


def parts_of(k, x, y, is_sent):
    """The rows in the statistics, and the others."""
    return [
        Rows(x[kept], y[kept], k, 0, torch.full((int(kept.sum()),), inside))
        for kept, inside in ((is_sent, True), (~is_sent, False))
    ]


def losses_by_hand(left_out, rows):
    """The summed log-losses of the two candidates: shape (2, 25)."""
    each = [
        left_out_losses(left_out.scores(FORM, candidate), rows, by)[0][0]
        for candidate, by in zip(QUERY.candidates, QUERY.temperatures)
    ]
    return torch.stack(each)


def answered(truth, uploads, left_out, number_of_parts):
    """What clients answer on the first part, or on both: an earlier protocol."""
    hits, losses = {}, {}
    for k, (x, y) in truth.clients.items():
        parts = parts_of(k, x, y, uploads[k].counts[y] > 0)[:number_of_parts]
        scored = sum(len(rows) for rows in parts)
        score = left_out.scores(FORM)
        found = sum(left_out_hits(score, rows) for rows in parts)
        hits[k] = HitCounts(k, len(y), found, 0, scored)
        total = sum(losses_by_hand(left_out, rows) for rows in parts)
        losses[k] = LogLosses(k, scored, (64 * total).round().long())
    return hits, losses


def attacked(truth, number_of_parts, told=("hits", "log_losses"), clock=CLOCK):
    uploads, left_out = sent(truth.clients)
    hits, losses = answered(truth, uploads, left_out, number_of_parts)
    seen = transcript(
        form=FORM,
        uploads=uploads,
        left_out=left_out,
        loss_query=QUERY,
        domains=dict.fromkeys(truth.clients, "a"),
        hits=hits if "hits" in told else {},
        log_losses=losses if "log_losses" in told else {},
    )
    return only(a13(seen, truth, clock))


@pytest.mark.slow
@pytest.mark.parametrize("told", [("log_losses",), ("hits", "log_losses")])
def test_where_withheld_rows_are_in_the_numbers_they_are_found(told):
    """Each client has a row of two withheld classes."""
    _, truth = federation()
    found = attacked(truth, 2, told)
    assert (found.tried, found.passed) == (12, False)
    assert found.chance < 0.5
    assert found.value == 12.0


@pytest.mark.slow
def test_where_they_are_not_chance_has_as_much():
    _, truth = federation()
    found = attacked(truth, 1)
    assert found.passed is True
    assert found.value <= found.limit
    assert "the numbers of 6 clients contain no withheld row" in found.note


def exact_losses(left_out, rows):
    """Of every candidate, not rounded: [n, candidates x temperatures]."""
    by = QUERY.temperatures[0]
    found = left_out.scores(FORM)(rows)
    return torch.cat([log_losses(one, rows.labels, by)[0].T for one in found], dim=1)


@pytest.mark.slow
def test_exact_log_losses_of_all_candidates_give_rows_away():
    """Four rows of one client among 1,649 that are known; their classes are not."""
    clients, _ = federation()
    _, left_out = sent(clients)
    y = torch.arange(1649) % CLASSES
    known = rows_of(y, 7)
    nowhere = torch.zeros(len(y), dtype=torch.bool)
    rows = exact_losses(left_out, Rows(known, y, 1, 0, nowhere))
    own = torch.tensor([3, 500, 901, 1500])
    total = rows[own].sum(dim=0)
    one_class, counts = torch.zeros_like(y), torch.tensor([4])

    def found(total, noise):
        scores = likely(rows, total, noise, one_class, counts)
        return len(set(scores.topk(4).indices.tolist()) & set(own.tolist()))

    assert found(total, 1e-9 * rows.std(dim=0) + 1e-12) >= 3
    assert found(torch.zeros_like(total), torch.ones_like(total)) == 0


def test_what_each_row_contributes_adds_up():
    clients, _ = federation()
    uploads, left_out = sent(clients)
    x, y = clients[3]
    for rows in parts_of(3, x, y, uploads[3].counts[y] > 0):
        numbers = numbers_of(rows, FORM, left_out, QUERY)
        score = left_out.scores(FORM)
        assert torch.equal(numbers.hits.sum(dim=0), left_out_hits(score, rows).double())
        total = 64 * losses_by_hand(left_out, rows).flatten()
        torch.testing.assert_close(numbers.losses.sum(dim=0), total)


@pytest.mark.slow
def test_without_answers_or_withheld_classes_there_is_nothing():
    _, truth = federation()
    assert only(a13(transcript(), truth, CLOCK)).tried is None
    _, truth = federation(few=10)
    found = attacked(truth, 2)
    assert (found.passed, found.tried) == (None, None)
    assert found.note == "no client has a withheld class"


@pytest.mark.slow
def test_no_time_is_no_pass():
    _, truth = federation()
    found = attacked(truth, 2, clock=Clock(-1))
    assert (found.passed, found.tried) == (None, 0)
