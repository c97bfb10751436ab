"""Components down, hit counts up: there and back, and what is refused."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from spoilt_messages import CLASSES, DIM, SCHEMA, pack, refusal

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.exchanges import Request
from federatedscope_ggeur.federation.exchanges.closed_form.choice import (
    HitCounts,
    LeaveOneOut,
)
from federatedscope_ggeur.federation.exchanges.closed_form.exchange import LEAVE_ONE_OUT
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.closed_forms import Components


def components():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, DIM, generator=generator) + 5
    labels = torch.arange(30) % 2 + 1
    return Components.joined(
        Components.of_client(
            Statistics.from_embeddings(features[k::3], labels[k::3], CLASSES),
            k + 1,
            "ab"[k % 2],
            ("a", "b"),
        )
        for k in range(3)
    )


@pytest.mark.parametrize("grain", ["client", "domain", "class"])
def test_components_arrive_to_the_bit(grain):
    sent = components().merged(grain)
    data = LeaveOneOut(sent).to_bytes()
    found = LeaveOneOut.from_bytes(data, SCHEMA)
    for name in ("labels", "counts", "means", "clients", "domains"):
        assert torch.equal(getattr(found.components, name), getattr(sent, name))
    upper = torch.triu(sent.scatter)
    assert torch.equal(torch.triu(found.components.scatter), upper)
    assert torch.equal(found.components.scatter, found.components.scatter.T)
    assert found.components.domain_names == ("a", "b")
    assert found.equals(LeaveOneOut.from_bytes(data, SCHEMA))


def test_a_scatter_that_is_not_needed_does_not_travel():
    sent = components()
    without = Components(**{**sent.__dict__, "scatter": None})
    data = LeaveOneOut(without).to_bytes()
    assert len(data) < len(LeaveOneOut(sent).to_bytes())
    assert LeaveOneOut.from_bytes(data, SCHEMA).components.scatter is None


def test_what_scores_rows_is_made_once_for_clients_of_one_form():
    message = LeaveOneOut(components())
    form = CLOSED_FORMS["lda"]()
    assert message.scores(form) is message.scores(form)
    assert message.scores(CLOSED_FORMS["ridge"]()) is not message.scores(form)


@pytest.mark.parametrize(
    ("field", "tensor"),
    [
        ("counts", torch.tensor([2, 0])),
        ("counts", torch.tensor([2, -1])),
        ("means", torch.full((2, DIM), 1e16, dtype=torch.float64)),
        ("clients", torch.tensor([1, -2])),
        ("domains", torch.tensor([0, 2])),
        ("labels", torch.tensor([0, CLASSES])),
        ("scatter", torch.full((10,), 1e50, dtype=torch.float64)),
        ("scatter", torch.ones(DIM, DIM, dtype=torch.float64)),
    ],
)
def test_components_that_cannot_be_are_refused(field, tensor):
    data = pack(LeaveOneOut, tensors={field: tensor})
    assert refusal(LeaveOneOut, data).field == field


def test_components_of_one_place_twice_are_refused():
    names = ("labels", "clients", "domains")
    twice = {name: torch.tensor([0, 0]) for name in names}
    assert refusal(LeaveOneOut, pack(LeaveOneOut, tensors=twice)).field == "labels"


@pytest.mark.parametrize("hits", [[6, 0], [0, -1]])
def test_hits_lie_within_the_rows(hits):
    data = pack(HitCounts, tensors={"hits": torch.tensor(hits)})
    assert refusal(HitCounts, data).field == "hits"


def test_no_more_rows_are_scored_than_there_are():
    data = pack(HitCounts, numbers={"scored": 7})
    assert refusal(HitCounts, data).field == "scored"


def test_rows_of_absent_classes_are_among_those_not_scored():
    data = pack(HitCounts, numbers={"rows": 9, "scored": 5, "absent": 5})
    assert refusal(HitCounts, data).field == "absent"


@pytest.mark.parametrize(
    ("counts", "field"),
    [
        (HitCounts(3, 10, torch.tensor([1]), 0, 10), "hits"),
        (HitCounts(3, 7, torch.tensor([1, 2]), 0, 7), "rows"),
        (HitCounts(3, 9, torch.tensor([1, 2]), 2, 9), "rows"),
        (HitCounts(3, 9, torch.tensor([1, 2]), 0, 7), "rows"),
        (HitCounts(4, 10, torch.tensor([1, 2]), 0, 10), "client"),
    ],
)
def test_counts_that_do_not_fit_the_federation_are_refused(counts, field):
    server = SimpleNamespace(merged=SimpleNamespace(rows={1: 4, 3: 8}))
    exchange = SimpleNamespace(
        server=server, solver=SimpleNamespace(candidates=("one", "two"))
    )
    request = Request(LEAVE_ONE_OUT, 0, {})
    with pytest.raises(MessageError) as caught:
        LEAVE_ONE_OUT.validate(exchange, request, counts)
    assert caught.value.field == field
    fine = HitCounts(3, 8, torch.tensor([1, 2]), 0, 8)
    LEAVE_ONE_OUT.validate(exchange, request, fine)


WEIGHTED = replace(SCHEMA, statistics=StatisticsForm("pooled", weighted=True))


def test_weights_of_components_arrive_to_the_bit():
    sent = components()
    sent = replace(sent, sums=sent.counts.double() * 0.3)
    data = LeaveOneOut(sent).to_bytes()
    found = LeaveOneOut.from_bytes(data, WEIGHTED).components
    assert torch.equal(found.sums, sent.sums)
    assert torch.equal(found.merged("class").sums, sent.merged("class").sums)
    with pytest.raises(MessageError, match="weights"):
        LeaveOneOut.from_bytes(data, SCHEMA)


@pytest.mark.parametrize(
    ("hits", "weight", "field"),
    [
        ([0.0, 2.5, 1.5], 2.5, ""),
        ([0.0, 2.6, 1.5], 2.5, "hits"),
        ([0.0, -0.1, 1.5], 2.5, "hits"),
        ([0.0, float("nan"), 1.5], 2.5, "hits"),
        ([0, 2, 1], 2.5, "hits"),
        ([0.0, 0.0, 0.0], 0.0, "weight"),
        ([0.0, 2.5, 1.5], None, "weight"),
    ],
)
def test_weighted_hits_lie_within_the_weight_of_the_rows(hits, weight, field):
    sent = HitCounts(1, 9, torch.tensor(hits), 0, 4, 0, weight)
    if sent.hits.is_floating_point():
        sent = replace(sent, hits=sent.hits.double())
    if not field:
        found = HitCounts.from_bytes(sent.to_bytes(), WEIGHTED, "client 1")
        assert torch.equal(found.hits, sent.hits)
        assert (found.weight, found.scored) == (weight, 4)
        return
    with pytest.raises(MessageError) as refused:
        HitCounts.from_bytes(sent.to_bytes(), WEIGHTED, "client 1")
    assert refused.value.field == field
