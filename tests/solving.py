"""What the tests of closed forms share: statistics of rows, data of many kinds."""

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import Statistics

SHAPES = {
    "many rows": {"n": 200, "dim": 6},
    "more dimensions than rows": {"n": 25, "dim": 40},
    "far from the origin": {"n": 200, "dim": 6, "offset": 1e3},
    "far, with few rows": {"n": 25, "dim": 40, "offset": 1e3},
    "classes nowhere": {"n": 60, "dim": 6, "missing": (0, 3)},
    "one dimension": {"n": 60, "dim": 1},
}


def stats(rows, labels, num_classes, weights=None):
    rows = torch.from_numpy(np.asarray(rows, dtype=np.float64))
    labels = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    weights = None if weights is None else torch.from_numpy(weights).double()
    return Statistics.from_embeddings(rows, labels, num_classes, weights)


def weights_of(model):
    layer = model.classifier
    return layer.weight.double().numpy(), layer.bias.double().numpy()


def make_rows(shape):
    """Rows and labels of one of SHAPES: one class with one sample, one with two."""
    rows, labels = oracle.make_data(
        np.random.default_rng(7), num_classes=5, **SHAPES[shape]
    )
    keep = ~np.isin(labels, (2, 4))
    keep[:3], labels[:3] = True, [4, 2, 2]
    return rows[keep], labels[keep]


def check_linear(data, form, wanted):
    """The same head as the oracle's, from either kind of statistics."""
    rows, labels = data
    statistics = stats(rows, labels, 5)
    kept = oracle.seen(labels)
    for held in (statistics, statistics.to("pooled")):
        weight, bias = weights_of(form.solve(held).model)
        oracle.assert_close(weight[kept], oracle.centred(wanted[0]))
        oracle.assert_close(bias[kept], oracle.centred(wanted[1]))


def refuse(form, statistics, message):
    with pytest.raises(StatisticsError, match=message):
        form.solve(statistics)


#: Data of three classes, statistics that suffice, and some that do not.
ROWS, LABELS = oracle.make_data(np.random.default_rng(1), 30, 4, 3)
ENOUGH = stats(ROWS, LABELS, 3)
FEW = stats(ROWS[:4], np.array([0, 0, 1, 1]), 3)


def singular(offset):
    """Statistics whose common covariance is singular, in three ways."""
    tripled = np.hstack([ROWS, ROWS @ np.ones((4, 1))]) + offset
    dead = np.hstack([ROWS, np.zeros((30, 1))]) + offset
    alone = stats(ROWS[:3], np.arange(3), 3)
    return FEW, alone, *(stats(rows, LABELS, 3) for rows in (tripled, dead))


#: Data that other libraries are compared on.
OTHERS_ROWS, OTHERS_LABELS = oracle.make_data(np.random.default_rng(11), 300, 5, 4)
OTHERS = stats(OTHERS_ROWS, OTHERS_LABELS, 4)
