"""Payloads survive the trip through bytes, exact in float32 and as small as may be."""

from dataclasses import replace

import pytest
import torch

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    PrepareReply,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.evaluation.scores import ScoreReport
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.exchanges.training.messages import (
    Broadcast,
    ClientUpdate,
)
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import GeometricShape, Statistics

CLASSES, DIM, PARAMS = 4, 8, 10
SCHEMA = MessageSchema(CLASSES, DIM, PARAMS)
# 3 samples are sent as a factor of rank 2, 40 as a triangle of 36 numbers.
FEW, MANY = 3, 40


def send(payload, schema=SCHEMA):
    return type(payload).from_bytes(payload.to_bytes(), schema, "client 1")


def make_rows(sizes, seed=0, dim=DIM):
    """Rows of the classes in `sizes`, a mapping from class to number of samples."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat(
        [torch.zeros(0, dtype=torch.int64)]
        + [torch.full((n,), c) for c, n in sizes.items()]
    )
    return torch.randn(len(labels), dim, generator=generator), labels


def make_upload(sizes, seed=0, classes=CLASSES, dim=DIM):
    statistics = Statistics.from_embeddings(*make_rows(sizes, seed, dim), classes)
    return StatisticsUpload(1, "art", statistics)


@pytest.mark.parametrize("params", [torch.randn(PARAMS), torch.full((PARAMS,), 5e29)])
def test_broadcast_and_update_are_exact(params):
    extra = {
        "c": torch.randn(PARAMS),
        "n": torch.tensor([1, 2]),
        "x": torch.tensor(1.5),
        "images": torch.arange(256).to(torch.uint8).reshape(4, 64),
    }
    down = send(Broadcast(3, params, extra))
    up = send(ClientUpdate(1, 3, params, 17, extra))
    assert (down.round_number, up.round_number, up.client, up.steps) == (3, 3, 1, 17)
    for received, own in ((down, down.download), (up, up.upload)):
        assert torch.equal(received.params, params)
        assert set(own) == set(extra)
        for name, tensor in extra.items():
            assert torch.equal(own[name], tensor)
            assert own[name].dtype == tensor.dtype


def test_tensors_of_all_layouts_travel():
    table = torch.randn(PARAMS, 6)
    received = send(Broadcast(1, table[:, 2], {"t": table.T, "same": table.T}))
    assert torch.equal(received.params, table[:, 2])
    assert torch.equal(received.download["t"], table.T)


def test_what_is_empty_arrives_empty():
    scores = {"test": Score(13, 40, 0.1 + 0.2), "val": Score()}
    for report in (ScoreReport(1, 5, scores), ScoreReport(1, 5, {})):
        assert send(report) == report
    assert send(PrepareReply(1, 0.0)).init_upload == {}
    nobody = torch.zeros(0, dtype=torch.int64), torch.zeros(0, DIM)
    assert send(Prototypes(*nobody)).prototypes.shape == (0, DIM)
    received = send(make_upload({})).statistics
    assert (received.classes, received.num_classes, received.dim) == ([], CLASSES, DIM)
    assert send(Geometry({})).shapes == {}
    pooled = replace(SCHEMA, pooled_geometry=True)
    assert send(Geometry({}, pooled=True), pooled).shapes == {}


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9, 20])
def test_upload_takes_the_smaller_form(n):
    dim = 16
    bare = len(make_upload({}, dim=dim).to_bytes())
    numbers = (len(make_upload({0: n}, dim=dim).to_bytes()) - bare) / 4
    # Beside the covariance: a mean in float64, three integers, the header's padding.
    smaller = min((n - 1) * dim, dim * (dim + 1) // 2)
    assert smaller + 2 * dim <= numbers <= smaller + 2 * dim + 6 + 10


def test_geometry_keeps_shapes_to_float32():
    statistics = make_upload({0: FEW, 1: 1, 3: MANY}).statistics
    shapes = {c: GeometricShape.from_statistics(statistics, c) for c in (0, 1, 3)}
    received = send(Geometry(shapes)).shapes
    assert list(received) == [0, 1, 3]
    assert [received[c].rank for c in received] == [2, 0, DIM]
    for c, shape in shapes.items():
        assert torch.equal(received[c].eigenvalues, shape.eigenvalues)
        assert torch.equal(received[c].eigenvectors, shape.eigenvectors.float())
        assert received[c].dim == DIM


def test_one_shape_for_all_classes_travels_once():
    statistics = make_upload({0: 9, 3: MANY}).statistics.to("pooled")
    shape = GeometricShape.pooled(statistics)
    whole = Geometry(dict.fromkeys(range(CLASSES), shape))
    once = replace(whole, pooled=True)
    pooled = replace(SCHEMA, pooled_geometry=True)
    received = send(once, pooled).shapes
    assert list(received) == list(range(CLASSES))
    for held in received.values():
        assert held is received[0]
        assert torch.equal(held.eigenvalues, shape.eigenvalues)
        assert torch.equal(held.eigenvectors, shape.eigenvectors.float())
    assert len(once.to_bytes()) < len(whole.to_bytes()) - 2 * 4 * DIM * DIM
    for sent, schema in ((once, SCHEMA), (whole, pooled)):
        with pytest.raises(MessageError, match="ranks"):
            send(sent, schema)
