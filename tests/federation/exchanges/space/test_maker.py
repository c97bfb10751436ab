"""The space of a run: of all rows that clients tell of, once each, and as it travels.

Tests of exchanges/space/messages.py, too.
"""

import logging

import pytest
import torch

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.federation.exchanges.space import (
    SpaceBroadcast,
    SpaceMaker,
    TotalsUpload,
)
from federatedscope_ggeur.federation.wire.schema import MessageSchema, StatisticsForm
from federatedscope_ggeur.geometry import Space, SpaceSettings, Statistics, Totals

CLASSES, DIM = 3, 4


def make_rows(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, DIM, generator=generator), torch.arange(n) % CLASSES


NOTHING = Statistics.empty(CLASSES, DIM)


def assert_same(space, other):
    assert space.kind == other.kind
    torch.testing.assert_close(space.centre, other.centre)
    rows = make_rows(9, 99)[0]
    torch.testing.assert_close(space.features(rows), other.features(rows))


def test_totals_alone_make_the_standard_space_of_all_rows():
    parts = [make_rows(n, seed=n)[0] for n in (3, 8, 5)]
    maker = SpaceMaker(SpaceSettings("standard"), DIM)
    uploads = [TotalsUpload(k, Totals.of_rows(part)) for k, part in enumerate(parts, 1)]
    maker.add(uploads[1:])
    maker.add(uploads[:1])
    assert maker.told == {1, 2, 3}
    made = maker.make(NOTHING)
    assert_same(made, Space.standard(Totals.of_rows(torch.cat(parts))))
    other = SpaceMaker(SpaceSettings("standard"), DIM)
    other.add(uploads[:0:-1])  # within a window the order changes no bit
    other.add(uploads[:1])
    assert torch.equal(other.make(NOTHING).centre, made.centre)


@pytest.mark.parametrize("kind", ["standard", "whitened"])
def test_rows_of_statistics_and_of_totals_are_put_together(kind):
    rows, labels = make_rows(30, 0)
    rest, _ = make_rows(6, 1)
    statistics = Statistics.from_embeddings(rows, labels, CLASSES)
    maker = SpaceMaker(SpaceSettings(kind, 0.4), DIM)
    parts = (slice(0, 11), slice(11, 30))
    for part in parts:
        own = Statistics.from_embeddings(rows[part], labels[part], CLASSES)
        maker.add_statistics(own)
    maker.add([TotalsUpload(2, Totals.of_rows(rest))])
    every = Totals.of_rows(torch.cat([rows, rest]))
    wanted = SpaceSettings(kind, 0.4).make(every, statistics)
    assert_same(maker.make(statistics), wanted)


@pytest.mark.parametrize("units", [1.0, 1e6])
def test_means_alone_and_the_scatter_within_classes_are_as_good_as_statistics(
    units,
):
    units = torch.tensor([1.0, units**0.5, units, units])
    makers = [SpaceMaker(SpaceSettings("standard"), DIM) for _ in range(2)]
    for k, n in enumerate((12, 20, 7), start=1):
        rows, labels = make_rows(n, seed=n)
        statistics = Statistics.from_embeddings(rows * units, labels, CLASSES)
        makers[0].add_statistics(statistics)
        makers[1].add_statistics(statistics.to("means"))
        within = statistics.trace(), statistics.diagonal()
        makers[1].add([TotalsUpload(k, Totals.empty(DIM), *within)])
    spaces = [maker.make(NOTHING) for maker in makers]
    assert {space.scales is None for space in spaces} == {float(units[2]) == 1}
    assert_same(*spaces)


def test_means_alone_make_no_white_space():
    means = Statistics.from_embeddings(*make_rows(9, seed=0), CLASSES).to("means")
    maker = SpaceMaker(SpaceSettings("whitened"), DIM)
    maker.add_statistics(means)
    with pytest.raises(StatisticsError, match="have no covariance"):
        maker.make(means)


@pytest.mark.parametrize("kind", ["standard", "whitened"])
def test_where_nobody_tells_it_stays_raw_and_says_so(kind, caplog):
    maker = SpaceMaker(SpaceSettings(kind), DIM)
    maker.add([TotalsUpload(1, Totals.empty(DIM))])
    with caplog.at_level(logging.WARNING):
        assert maker.make(NOTHING).is_raw
    assert "raw embeddings" in caplog.text
    assert "lower" in caplog.text


def test_a_white_space_needs_more_than_totals():
    maker = SpaceMaker(SpaceSettings("whitened"), DIM)
    maker.add([TotalsUpload(1, Totals.of_rows(make_rows(9, 0)[0]))])
    with pytest.raises(StatisticsError, match="whitened"):
        maker.make(NOTHING)


def test_the_scatter_within_classes_goes_beside_means_alone():
    schema = MessageSchema(CLASSES, DIM, 1, StatisticsForm("means"))
    squares = torch.tensor([0.1, 0.2, 0, 0], dtype=torch.float64)
    upload = TotalsUpload(2, Totals.empty(DIM), 0.1 + 0.2, squares)
    received = TotalsUpload.from_bytes(upload.to_bytes(), schema, "client 2")
    assert received.within == upload.within
    assert torch.equal(received.within_squares, squares)


def spaces():
    rows, labels = make_rows(40, 0)
    rows = rows + 3
    totals = Totals.of_rows(rows)
    statistics = Statistics.from_embeddings(rows, labels, CLASSES)
    units = Totals.of_rows(rows * 10.0 ** torch.arange(DIM))
    return (
        Space.standard(totals),
        Space.whitened(totals, statistics, 0.3),
        Space.standard(units),
    )


@pytest.mark.parametrize("space", spaces(), ids=lambda space: str(space.report()))
def test_both_sides_are_in_the_same_space_to_the_bit(space):
    data = SpaceBroadcast(space).to_bytes()
    received = SpaceBroadcast.from_bytes(data, MessageSchema(CLASSES, DIM, 1)).space
    assert received.kind == space.kind
    rows = make_rows(40, 0)[0]
    assert torch.equal(received.features(rows), space.features(rows))
    weights = rows.double()
    assert torch.equal(received.inverse_linear(weights), space.inverse_linear(weights))


def test_a_matrix_is_sent_once_not_twice():
    standard, white, each = (len(SpaceBroadcast(s).to_bytes()) for s in spaces())
    assert each - standard <= 8 * DIM + 64
    assert white - standard <= 4 * DIM * (DIM + 1) // 2 + 64
