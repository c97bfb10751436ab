"""No answer that a client can give is longer than what the server would read."""

from __future__ import annotations

import pytest
import torch
from by_bytes import SGD, Federation, make_client_data
from carrier import carrier

from federatedscope_ggeur.federation.exchanges.statistics.exchange import longest_upload
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire import limits
from federatedscope_ggeur.federation.wire.schema import MessageSchema, StatisticsForm
from federatedscope_ggeur.geometry import ClassStatistics, Compression
from federatedscope_ggeur.methods import METHODS, FedMix
from federatedscope_ggeur.methods.tensors import TensorSpec


@pytest.mark.parametrize("scale", [1.0, 1e-30])
@pytest.mark.parametrize("rows", [0, 3, 5000])
@pytest.mark.parametrize(
    "form",
    [
        StatisticsForm("class"),
        StatisticsForm("class", exact=True),
        StatisticsForm("pooled", exact=True),
        StatisticsForm("means"),
        StatisticsForm("pooled", compression=Compression()),
    ],
    ids=str,
)
def test_statistics_fit(form, rows, scale):
    classes, dim = 6, 40
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, dim, generator=generator, dtype=torch.float64) * scale
    labels = torch.randint(classes, (rows,), generator=generator)
    held = ClassStatistics.from_embeddings(x.float(), labels, classes)
    sent = StatisticsUpload.of(1, "d" * 200, held, form).to_bytes()
    schema = MessageSchema(classes, dim, 0, form)
    assert len(sent) <= longest_upload(schema)
    # It is a bound of this schema's and not one of any.
    assert longest_upload(schema) < limits.PLAIN + 8 * classes * (dim + 4) ** 2


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.federated])
def test_answers_of_every_method_fit(name):
    carried = carrier(METHODS[name]())
    carried.round0()
    carried.rounds(1, 2, 3)
    for request in carried.requests:
        most = carried.coordinator.asking.largest_answer(request.kind)
        for kind, number, _, reply in carried.answers:
            if (kind, number) == (request.kind.name, request.round_number):
                assert most is None or sum(map(len, reply)) <= most
    kinds = {request.kind.name for request in carried.requests}
    assert {"statistics", "prepare", "train", "evaluate"} <= kinds


def test_lengths_that_a_method_leaves_open_have_no_bound():
    closed = {"a": TensorSpec((3, 2)), "b": TensorSpec((5,), torch.int64)}
    assert limits.of_tensors(10, closed) == limits.PLAIN + 40 + 24 + 40
    assert limits.of_tensors(10, {"a": TensorSpec((None, 2))}) is None
    assert limits.of_tensors(None, {}) is None
    specs = FedMix(0.1).init_upload_shapes(
        Federation(make_client_data(), training=SGD).server.model
    )
    assert limits.of_tensors(0, specs) is None
