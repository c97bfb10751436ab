"""GGEUR along one shape for all classes, by whole runs."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    AugmentationExchange,
)

POOLED = ["ggeur.geometry", "pooled"]
COMPRESSED = ["ggeur.statistics", "compressed", "ggeur.compressed.rank", 4]


def geometry_of(config, *settings):
    going = Run(config("ggeur.privacy.min_samples", 1, *settings))
    results = going.follow(lambda record: None)
    augmentation = going.engine.coordinator.find(AugmentationExchange)
    return augmentation.make_geometry(), results, going


@pytest.mark.slow
def test_the_shape_is_that_of_all_rows_less_their_class_means(config):
    geometry, pooled, going = geometry_of(config, *POOLED)
    rows, labels = (
        torch.cat([getattr(client.train, name) for client in going.data.clients])
        for name in ("features", "labels")
    )
    rows = rows.double().numpy()
    centred = np.array(
        [row - rows[labels == label].mean(axis=0) for row, label in zip(rows, labels)]
    )
    values = np.linalg.eigvalsh(centred.T @ centred / len(rows))[::-1]
    shapes = list(geometry.shapes.values())
    assert all(shape is shapes[0] for shape in shapes)
    assert sorted(geometry.shapes) == list(range(12))
    np.testing.assert_allclose(shapes[0].eigenvalues, values, rtol=1e-4)
    # It takes as many times fewer bytes as there are classes.
    _, whole, _ = geometry_of(config)
    few = pooled.round0.geometry_bytes_down
    assert few < whole.round0.geometry_bytes_down / 3
    assert pooled.round0.statistics_bytes_up == whole.round0.statistics_bytes_up
    assert pooled.final.avg > 0.5


@pytest.mark.parametrize(
    ("statistics", "steps"),
    [(["ggeur.statistics", "summed"], [1]), (COMPRESSED, [2]), (COMPRESSED, [1, 2])],
)
def test_fewer_statistics_suffice_for_it(config, statistics, steps):
    settings = [*POOLED, "ggeur.steps", steps]
    _, exact, _ = geometry_of(config, *settings)
    geometry, results, going = geometry_of(config, *settings, *statistics)
    assert results.round0.bytes_up < exact.round0.bytes_up
    assert results.final.avg == pytest.approx(exact.final.avg, abs=0.05)
    held = going.engine.server.merged.statistics
    shape = geometry.shapes[0]
    assert float(shape.eigenvalues.sum()) == pytest.approx(
        float(held.scatter().trace()) / int(held.counts.sum()), rel=1e-5
    )
    cost = results.round0.compression
    assert (cost is None) == (statistics is not COMPRESSED)


def test_a_class_that_nobody_may_tell_of_is_augmented_as_well(config):
    """Along the shape of the others; with a shape for each class its rows are repeated,
    so that it counts as much."""
    settings = ["ggeur.privacy.min_samples", 4, "ggeur.steps", [1]]
    held, distinct = {}, {}
    for name, also in (("class", []), ("pooled", POOLED)):
        going = Run(config(*settings, *also))
        results = going.follow(lambda record: None)
        recipes = [client.recipe for client in going.engine.clients.values()]
        held[name] = [recipe.rows for recipe in recipes]
        rows = [recipe.draw()[0] for recipe in recipes]
        distinct[name] = [len(drawn.unique(dim=0)) for drawn in rows]
        assert results.round0.uploaded_pairs > 0
    assert held["class"] == held["pooled"]
    assert sum(distinct["pooled"]) > sum(distinct["class"])
