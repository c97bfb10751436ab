"""What is told of compression: by plain norms of what was sent and what arrived."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.federation.exchanges.statistics.compression_log import (
    CompressionLog,
)
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire.schema import MessageSchema, StatisticsForm
from federatedscope_ggeur.geometry import (
    ClassStatistics,
    Compression,
    MeanStatistics,
    SummedStatistics,
)

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


def logged(form, numbers=(1, 2)):
    log, exact, merged = CompressionLog(), 0, 0
    uploads = {}
    for number in numbers:
        held, uploads[number] = client(number, form)
        exact, merged = exact + held, merged + uploads[number].statistics
        log.add(uploads[number])
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


def test_what_is_left_out_is_told_over_all_clients():
    log, _, merged, _ = logged(POOLED, range(1, 8))
    record = log.record(merged)
    shares = [one.left_out for one in record.clients.values()]
    assert 0 < min(shares) < record.left_out < max(shares) < 1


def test_means_alone_have_no_covariance_to_be_off():
    log, _, merged, _ = logged(MEANS)
    assert isinstance(merged, MeanStatistics)
    record = log.record(merged)
    assert record.left_out is None
    assert all(one.covariance_error is None for one in record.clients.values())


def test_nothing_is_told_where_nothing_was_compressed():
    assert CompressionLog().record(MeanStatistics.empty(CLASSES, DIM)) is None
