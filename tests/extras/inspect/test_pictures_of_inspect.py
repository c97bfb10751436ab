"""The pictures of ``ggeur inspect``, read off their pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from federatedscope_ggeur.extras.inspect.client_counts import (
    client_order,
    draw_client_counts,
)
from federatedscope_ggeur.extras.inspect.heatmaps import draw_heatmap

# The picture of many clients: one page, read off its pixels.


def crowd(clients, classes, domains=("all",), seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.gamma(0.3, 10, (clients, classes)))
    return counts, [domains[k % len(domains)] for k in range(clients)]


def drawn(path, counts, domains, names=None):
    """The picture's grey values."""
    names = names or [f"class {i}" for i in range(counts.shape[1])]
    draw_client_counts(path, counts, domains, names)
    return np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("L"))


@pytest.mark.slow
@given(
    counts=hnp.arrays(
        np.int64,
        st.tuples(st.integers(1, 12), st.integers(1, 4)),
        elements=st.integers(0, 5),
    ),
    data=st.data(),
)
def test_order_is_by_domain_then_by_largest_class_and_its_share(counts, data):
    names = data.draw(
        st.lists(st.sampled_from("abc"), min_size=len(counts), max_size=len(counts))
    )
    order = client_order(counts, names)
    assert sorted(order) == list(range(len(counts)))
    first = list(dict.fromkeys(names))
    places = [first.index(names[k]) for k in order]
    assert places == sorted(places)
    for one, other in zip(order, order[1:]):
        if names[one] != names[other]:
            continue
        a, b = counts[one], counts[other]
        if not a.sum():
            assert not b.sum(), "those without rows come last"
        elif b.sum():
            assert np.argmax(a) <= np.argmax(b)
            if np.argmax(a) == np.argmax(b):
                # An oracle without the rounding of a division.
                assert a.max() * b.sum() >= b.max() * a.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "classes", "domains"),
    [
        (41, 2, ("all",)),
        (300, 10, ("clean", "noisy", "a rather long name of a domain", "$x_{")),
        (300, 200, ("all",)),
        (300, 65, tuple(f"domain {i}" for i in range(60))),
    ],
)
def test_the_page_has_one_size_and_nothing_is_cut_off(
    tmp_path, clients, classes, domains
):
    pixels = drawn(tmp_path / "a.png", *crowd(clients, classes, domains))
    assert pixels.shape == (960, 1035)
    edges = (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:])
    assert min(edge.min() for edge in edges) == 255


def cells(pixels, rows, columns):
    """Mean grey of the image above, cut into `rows` x `columns` parts."""
    dark = pixels < 100
    top, *_, bottom = np.flatnonzero(dark[:720].mean(1) > 0.6)
    left, *_, right = np.flatnonzero(dark[top:bottom].mean(0) > 0.97)
    inner = pixels[top + 2 : bottom - 1, left + 2 : right - 1]
    return np.array(
        [
            [part.mean() for part in np.array_split(band, columns, axis=1)]
            for band in np.array_split(inner, rows)
        ]
    )


@pytest.mark.slow
def test_clients_of_one_class_each_make_a_staircase(tmp_path):
    counts = np.zeros((100, 4), dtype=int)
    counts[np.arange(100), np.arange(100) % 4] = 9
    found = cells(drawn(tmp_path / "a.png", counts, ["all"] * 100), 4, 4)
    held = np.eye(4, dtype=bool)
    assert found[held].max() < 120
    assert found[~held].min() > 240


@pytest.mark.slow
def test_nobody_has_rows(tmp_path):
    assert drawn(tmp_path / "a.png", np.zeros((50, 3), dtype=int), ["x"] * 50).min() < 9


# Matrices as pictures.


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
def test_a_number_stands_in_its_cell(tmp_path):
    one, other = counts(3, 4), counts(3, 4)
    other[2, 1] += 1
    one, other = (drawn_matrix(tmp_path / "a.png", values) for values in (one, other))
    rows, columns = np.nonzero(one != other)
    height, width = one.shape
    assert 0.5 * height < rows.min()
    assert 0.2 * width < columns.min() <= columns.max() < 0.6 * width


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
    assert (
        np.mean(drawn_matrix(tmp_path / "a.png", np.full((2, 2), 5.0)) == 255)
        < white - 0.2
    )
    values = np.array([[0, 5], [5, 0]])
    assert np.mean(drawn_matrix(tmp_path / "a.png", values) == 255) > white - 0.05
