"""What is told of compression: by plain norms of what was sent and what arrived."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.federation.exchanges.statistics.compression_log import (
    CompressionLog,
)
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.geometry import (
    ClassStatistics,
    Compression,
    MeanStatistics,
    SummedStatistics,
)
from federatedscope_ggeur.models import CLOSED_FORMS

CLASSES, DIM = 3, 10
POOLED = StatisticsForm("pooled", compression=Compression(3, dtype="int8"))
MEANS = StatisticsForm("means", compression=Compression(3, dtype="int8"))


def client(number, form, n=60):
    """What a client holds, and its upload as it arrives."""
    rng = np.random.default_rng(number)
    labels = np.arange(n) % CLASSES
    rows = rng.normal(size=(n, DIM)) * np.geomspace(2, 0.2, DIM)
    rows += 3 * np.eye(CLASSES, DIM)[labels] + number
    held = ClassStatistics.from_embeddings(
        torch.from_numpy(rows), torch.from_numpy(labels), CLASSES
    )
    data = StatisticsUpload.of(number, "art", held, form).to_bytes()
    schema = MessageSchema(CLASSES, DIM, 0, form)
    upload = StatisticsUpload.from_bytes(data, schema, f"client {number}")
    return SummedStatistics.from_classes(held), upload


def logged(form, numbers=(1, 2), for_head=False):
    log, exact, merged = CompressionLog(), 0, 0
    uploads = {}
    for number in numbers:
        held, uploads[number] = client(number, form)
        exact, merged = exact + held, merged + uploads[number].statistics
        log.add(uploads[number], for_head)
    return log, exact, merged, uploads


def test_a_clients_figures_are_exact():
    log, _, merged, uploads = logged(POOLED)
    record = log.record(merged)
    assert list(record.clients) == ["1", "2"]
    for number, upload in uploads.items():
        exact, _ = client(number, POOLED)
        found, held = record.clients[str(number)], upload.statistics
        size = held.scatter().norm()
        error = float((held.scatter() - exact.scatter()).norm() / size)
        assert found.covariance_error == pytest.approx(error, rel=1e-6)
        values = torch.linalg.eigvalsh(exact.scatter())
        assert found.left_out == pytest.approx(float(values[:-3].sum() / values.sum()))
        assert 0 < found.rounding_error < found.covariance_error
        off = held.means - exact.means
        spread = held.means - held.means.mean(dim=0)
        assert found.mean_error == pytest.approx(
            float(off.norm() / spread.norm()), rel=1e-6
        )


def test_what_they_merge_to_is_off_by_no_more_than_the_limits():
    log, exact, merged, _ = logged(POOLED, range(1, 8))
    record = log.record(merged)
    error = (merged.scatter() - exact.scatter()).norm() / merged.scatter().norm()
    assert 0 < float(error) <= record.covariance_error_limit
    counts = merged.counts.double()
    origin = counts @ merged.means / counts.sum()
    moved = counts @ (merged.means - exact.means).square().sum(dim=1)
    spread = counts @ (merged.means - origin).square().sum(dim=1)
    assert 0 < float((moved / spread).sqrt()) <= record.mean_error_limit
    assert 0 < record.left_out < 1
    assert record.head_error_limit is record.head_change_at_half_rank is None


def test_means_alone_have_no_covariance_to_be_off():
    log, _, merged, _ = logged(MEANS)
    assert isinstance(merged, MeanStatistics)
    record = log.record(merged)
    assert record.left_out is record.covariance_error_limit is None
    assert all(one.covariance_error is None for one in record.clients.values())
    assert record.mean_error_limit > 0


@pytest.mark.parametrize(("form", "kind"), [(MEANS, "ncm"), (POOLED, "lda")])
def test_a_head_is_off_by_no_more_than_its_limit(form, kind):
    log, exact, merged, _ = logged(form, for_head=True)
    head = CLOSED_FORMS[kind]()
    solved, wanted = head.solve(merged), head.solve(exact)
    log.note_head(head, solved, merged)
    record = log.record(merged)
    found, right = (s.model.classifier.weight for s in (solved, wanted))
    error = float((found - right).norm() / found.norm())
    if kind == "ncm":
        assert 0 < error <= record.head_error_limit
    else:
        assert record.head_change_at_half_rank > 0


def test_nothing_is_told_where_nothing_was_compressed():
    assert CompressionLog().record(MeanStatistics.empty(CLASSES, DIM)) is None
