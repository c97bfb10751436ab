"""Payloads survive the trip through bytes, exact in float32 and as small as may be."""

from dataclasses import replace

import pytest
import torch
from outcomes import finished

from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.federation.exchanges.augmentation import AugmentationExchange
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    PrepareReply,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.evaluation.scores import ScoreReport
from federatedscope_ggeur.federation.exchanges.training.messages import (
    Broadcast,
    ClientUpdate,
)
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import GeometricShape, Statistics
from federatedscope_ggeur.reporting import numbers

CLASSES, DIM, PARAMS = 4, 8, 10
SCHEMA = MessageSchema(CLASSES, DIM, PARAMS)
# 3 samples are sent as a factor of rank 2, 40 as a triangle of 36 numbers.
FEW, MANY = 3, 40


def send(payload, schema=SCHEMA):
    return type(payload).from_bytes(payload.to_bytes(), schema, "client 1")


def statistics_of(sizes):
    """Of the classes in `sizes`, a mapping from class to number of samples."""
    labels = torch.tensor([c for c, n in sizes.items() for _ in range(n)])
    rows = torch.randn(len(labels), DIM, generator=torch.Generator().manual_seed(0))
    return Statistics.from_embeddings(rows, labels, CLASSES)


def test_tensors_of_all_layouts_travel():
    table = torch.linspace(-5e29, 5e29, 6 * PARAMS).view(PARAMS, 6)
    own = {"t": table.T, "same": table.T}
    down, up = (
        send(Broadcast(1, table[:, 2], own)),
        send(ClientUpdate(1, 1, table[:, 2], 3, own)),
    )
    for received, tensors in ((down, down.download), (up, up.upload)):
        assert torch.equal(received.params, table[:, 2])
        assert torch.equal(tensors["t"], table.T)


def test_what_is_empty_arrives_empty():
    scores = {"test": Score(13, 40, 0.1 + 0.2), "val": Score()}
    for report in (ScoreReport(1, 5, scores), ScoreReport(1, 5, {})):
        assert send(report) == report
    assert send(PrepareReply(1, 0.0)).init_upload == {}
    nobody = torch.zeros(0, dtype=torch.int64), torch.zeros(0, DIM)
    assert send(Prototypes(*nobody)).prototypes.shape == (0, DIM)
    assert send(Geometry({})).shapes == {}
    pooled = replace(SCHEMA, pooled_geometry=True)
    assert send(Geometry({}, pooled=True), pooled).shapes == {}


def test_geometry_keeps_shapes_to_float32():
    statistics = statistics_of({0: FEW, 1: 1, 3: MANY})
    shapes = {c: GeometricShape.from_statistics(statistics, c) for c in (0, 1, 3)}
    received = send(Geometry(shapes)).shapes
    assert list(received) == [0, 1, 3]
    assert [received[c].rank for c in received] == [2, 0, DIM]
    for c, shape in shapes.items():
        assert torch.equal(received[c].eigenvalues, shape.eigenvalues)
        assert torch.equal(received[c].eigenvectors, shape.eigenvectors.float())
        assert received[c].dim == DIM


def test_one_shape_for_all_classes_travels_once():
    shape = GeometricShape.pooled(statistics_of({0: 9, 3: MANY}).to("pooled"))
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


# Runs on a share of the augmented set.


SHARE = ["ggeur.epoch_share", 0.25, "dataloader.batch_size", 8]
WHOLE = ["dataloader.batch_size", 8]


def clients_of(cfg):
    return finished(cfg)[0].engine.clients.values()


@pytest.mark.parametrize("space", ["raw", "standard"])
@pytest.mark.parametrize(("own", "momentum"), [(0.0, 0.9), (0.95, 0.95)])
def test_they_go_as_far(config, space, own, momentum):
    settings = ["ggeur.space", space, "train.optimizer.momentum", own]
    settings += ["train.scheduler.type", "StepLR", "train.scheduler.step_size", 1]
    settings += ["train.scheduler.gamma", 0.5]
    parts = clients_of(config(*settings, *SHARE))
    for part, whole in zip(parts, clients_of(config(*settings, *WHOLE))):
        assert part.aggregation_weight == whole.aggregation_weight
        assert part.kept_set is None is not whole.kept_set
        for number in (1, 2):
            on_part, on_whole = part.training(number), whole.training(number)
            reached = on_part.reach(part.recipe.rows)
            wanted = on_whole.reach(whole.recipe.rows)
            assert reached == pytest.approx(wanted, rel=1e-9)
            assert on_part.optimizer.momentum == momentum
        first, second = (part.training(number).reach(9) for number in (1, 2))
        assert first == pytest.approx(2 * second)


def test_methods_are_told_of_the_rate_that_is_taken(config, monkeypatch):
    """SCAFFOLD divides by it."""
    from federatedscope_ggeur.methods import METHODS

    told = []
    whole = METHODS["scaffold"].local

    def local(self, context):
        told.append((context.client, context.optimizer.lr))
        return whole(self, context)

    monkeypatch.setattr(METHODS["scaffold"], "local", local)
    settings = ["ggeur.base_method", "scaffold", "ggeur.scaffold.server_lr", 0.25]
    clients = clients_of(config(*SHARE, *settings))
    rates = {client.number: client.training(1).optimizer.lr for client in clients}
    assert dict(told) == rates
    assert min(rates.values()) > 3 * 0.01


def test_a_share_of_one_changes_no_bit(config):
    one, same = run(config()), run(config("ggeur.epoch_share", 1))
    assert numbers(one) == numbers(same)


def test_the_forecast_is_of_the_share(config):
    cfg = config(*SHARE, "federate.make_global_eval", True)
    found = forecast(set_up(cfg))
    going, results = finished(cfg)
    recipes = {c.number: c.recipe for c in going.engine.clients.values()}
    assert found.rows == {k: recipe.rows for k, recipe in recipes.items()}
    assert found.set_bytes == sum(recipe.nbytes for recipe in recipes.values())
    assert found.seconds.total > 0
    assert not found.same_every_round
    total = results.final.bytes_up, results.final.bytes_down
    assert (found.total.up, found.total.down) == pytest.approx(total, rel=0.01)


# GGEUR along one shape for all classes, by whole runs.


POOLED = ["ggeur.geometry", "pooled"]
COMPRESSED = ["ggeur.statistics", "compressed", "ggeur.compressed.rank", 4]


@pytest.mark.parametrize(
    ("statistics", "steps"),
    [(["ggeur.statistics", "summed"], [1]), (COMPRESSED, [2]), (COMPRESSED, [1, 2])],
)
def test_fewer_statistics_suffice_for_it(config, statistics, steps):
    settings = [*POOLED, "ggeur.steps", steps, "ggeur.privacy.min_samples", 1]
    _, exact = finished(config(*settings, "ggeur.statistics", "class"))
    going, results = finished(config(*settings, *statistics))
    assert results.round0.bytes_up < exact.round0.bytes_up
    assert results.final.avg == pytest.approx(exact.final.avg, abs=0.05)
    held = going.engine.server.merged.statistics
    geometry = going.engine.coordinator.find(AugmentationExchange).make_geometry()
    shape = geometry.shapes[0]
    assert float(shape.eigenvalues.sum()) == pytest.approx(
        float(held.scatter().trace()) / int(held.counts.sum()), rel=1e-5
    )


def test_a_class_that_nobody_may_tell_of_is_augmented_as_well(config):
    """Along the shape of the others; with a shape for each class its rows are repeated,
    so that it counts as much."""
    settings = ["ggeur.privacy.min_samples", 4, "ggeur.steps", [1]]
    held, distinct = {}, {}
    for name, also in (("class", []), ("pooled", POOLED)):
        going, results = finished(config(*settings, *also))
        recipes = [client.recipe for client in going.engine.clients.values()]
        held[name] = [recipe.rows for recipe in recipes]
        rows = [recipe.draw()[0] for recipe in recipes]
        distinct[name] = [len(drawn.unique(dim=0)) for drawn in rows]
        assert results.round0.uploaded_pairs > 0
    assert held["class"] == held["pooled"]
    assert sum(distinct["pooled"]) > sum(distinct["class"])
