"""Transforms of rows, against their formulas."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.data.transforms import (
    LIFTED,
    lift_directions,
    projected,
    random_projection,
    transform_rows,
)

SCALES = np.geomspace(1e-30, 1e15, 7)[:, None]
ROWS = SCALES * np.random.default_rng(0).normal(size=(7, 5))


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


KEPT = random_projection(5, 3, seed=4).numpy()
WANTED = {
    "none": ROWS.astype("float32"),
    "l2": unit(ROWS),
    "sqrt_l2": unit(np.sign(ROWS) * np.sqrt(np.abs(ROWS))),
    projected(3, 4): unit(unit(ROWS) @ KEPT.T),
    projected(0, 4): unit(ROWS),
}


@pytest.mark.parametrize("name", WANTED)
def test_rows_are_those_of_the_formula(name):
    """Also where squares of float32 underflow or overflow."""
    rows = transform_rows(torch.tensor(ROWS, dtype=torch.float32), name)
    assert rows.dtype is torch.float32
    np.testing.assert_allclose(rows.numpy(), WANTED[name], rtol=1e-5, atol=1e-7)


def test_a_lift_appends_random_features_and_a_row_of_zeros_stays():
    rows = torch.tensor([[1.0, -2.0], [0.0, 0.0]])
    lifted = transform_rows(rows, "lift")
    features = (rows.double() @ lift_directions(2)).relu().float()
    assert torch.equal(lifted, torch.cat([rows, features], dim=1))
    assert lifted.shape == (2, 2 + LIFTED)
    for name in ("l2", "sqrt_l2"):
        assert torch.equal(transform_rows(rows, name)[1], rows[1])


def test_a_projection_keeps_lengths_of_what_it_keeps():
    np.testing.assert_allclose(KEPT @ KEPT.T, np.eye(3), atol=1e-12)
