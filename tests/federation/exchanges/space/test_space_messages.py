"""Totals and spaces survive the trip through bytes to the bit."""

import pytest
import torch

from federatedscope_ggeur.federation.exchanges.space.messages import (
    SpaceBroadcast,
    TotalsUpload,
)
from federatedscope_ggeur.federation.wire.schema import MessageSchema, StatisticsForm
from federatedscope_ggeur.geometry import ClassStatistics, Space, Totals

CLASSES, DIM = 3, 5
SCHEMA = MessageSchema(CLASSES, DIM, 1)


def make_rows(n=40):
    generator = torch.Generator().manual_seed(0)
    return 3 + torch.randn(n, DIM, generator=generator), torch.arange(n) % CLASSES


def spaces():
    rows, labels = make_rows()
    totals = Totals.of_rows(rows)
    statistics = ClassStatistics.from_embeddings(rows, labels, CLASSES)
    units = Totals.of_rows(rows * 10.0 ** torch.arange(DIM))
    return (
        Space.standard(totals),
        Space.whitened(totals, statistics, 0.3),
        Space.standard(units),
    )


@pytest.mark.parametrize("n", [0, 1, 40])
def test_totals_are_exact(n):
    sent = Totals.of_rows(make_rows()[0][:n])
    upload = TotalsUpload(2, sent)
    received = TotalsUpload.from_bytes(upload.to_bytes(), SCHEMA, "client 2")
    assert received.client == 2
    assert (received.totals.count, received.totals.spread) == (n, sent.spread)
    assert torch.equal(received.totals.mean, sent.mean)
    assert torch.equal(received.totals.squares, sent.squares)


def test_the_scatter_within_classes_goes_beside_means_alone():
    schema = MessageSchema(CLASSES, DIM, 1, StatisticsForm("means"))
    squares = torch.tensor([0.1, 0.2, 0, 0, 0], dtype=torch.float64)
    upload = TotalsUpload(2, Totals.empty(DIM), 0.1 + 0.2, squares)
    received = TotalsUpload.from_bytes(upload.to_bytes(), schema, "client 2")
    assert received.within == upload.within
    assert torch.equal(received.within_squares, squares)


@pytest.mark.parametrize("space", spaces(), ids=lambda space: str(space.report()))
def test_both_sides_are_in_the_same_space_to_the_bit(space):
    data = SpaceBroadcast(space).to_bytes()
    received = SpaceBroadcast.from_bytes(data, SCHEMA).space
    assert received.kind == space.kind
    rows = make_rows()[0]
    assert torch.equal(received.features(rows), space.features(rows))
    weights = rows.double()
    assert torch.equal(received.inverse_linear(weights), space.inverse_linear(weights))


def test_a_matrix_is_sent_once_not_twice():
    standard, white, each = (len(SpaceBroadcast(s).to_bytes()) for s in spaces())
    assert each - standard <= 8 * DIM + 64
    assert white - standard <= 4 * DIM * (DIM + 1) // 2 + 64
