"""The pictures of ``ggeur inspect``, read off their pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from federatedscope_ggeur.extras.inspect.heatmaps import draw_heatmap

TITLES = {
    "title": "rows",
    "row_title": "client",
    "column_title": "class",
    "scale_title": "rows",
}


def drawn_matrix(path, values, rows=None, columns=None, **settings):
    """The picture's grey values."""
    rows = rows or [f"{i} a domain" for i in range(values.shape[0])]
    columns = columns or [f"class {i}" for i in range(values.shape[1])]
    draw_heatmap(path, values, rows, columns, **{**TITLES, **settings})
    return np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("L"))


def edges(pixels):
    """The darkest grey along the picture's edges."""
    return min(
        edge.min() for edge in (pixels[:3], pixels[-3:], pixels[:, :3], pixels[:, -3:])
    )


def counts(rows, columns):
    return np.random.default_rng(0).poisson(2, (rows, columns))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 1), (4, 10), (60, 3)])
def test_nothing_is_cut_off(tmp_path, shape):
    pixels = drawn_matrix(tmp_path / "a.png", counts(*shape))
    assert edges(pixels) == 255
    assert pixels.min() < 100


@pytest.mark.slow
def test_a_large_matrix_has_room_for_every_label(tmp_path):
    """A line of text takes 14 pixels."""
    long = [f"a rather long name of number {i}" for i in range(100)]
    pixels = drawn_matrix(tmp_path / "a.png", counts(35, 100), long[:35], long)
    assert edges(pixels) == 255
    lines = np.flatnonzero((pixels < 128).mean(axis=1) > 0.7)
    assert lines[-1] - lines[0] > 14 * 35
    assert (pixels[lines[0]] < 128).sum() > 14 * 100


@pytest.mark.parametrize(
    "values",
    [np.zeros((2, 3), dtype=int), np.full((2, 2), np.nan), np.zeros((2, 2))],
    ids=["nobody holds any", "nothing known", "all zero"],
)
def test_empty_matrices_are_drawn(tmp_path, values):
    assert drawn_matrix(tmp_path / "a.png", values).min() < 100


@pytest.mark.slow
def test_unknown_and_absent_cells_are_white(tmp_path):
    values = np.array([[np.nan, 5.0], [5.0, np.nan]])
    pixels = drawn_matrix(tmp_path / "a.png", values, largest=5.0)
    white = np.mean(pixels == 255)
    full = drawn_matrix(tmp_path / "a.png", np.full((2, 2), 5.0))
    assert np.mean(full == 255) < white - 0.2
    values = np.array([[0, 5], [5, 0]])
    assert np.mean(drawn_matrix(tmp_path / "a.png", values) == 255) > white - 0.05
