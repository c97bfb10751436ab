"""Accuracy of each class, and confusion matrices."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from PIL import Image
from written_runs import made, noisy, write

from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.class_figures import (
    class_accuracy,
    class_csv,
    class_figures,
    macro_f1,
    macro_f1_notes,
)
from federatedscope_ggeur.extras.studies.comparison.pictures import render


def counted(tmp_path, names, rows=2, seeds=(1, 2)):
    """A comparison of runs with these classes, and counts for each."""
    rng = np.random.default_rng(0)
    counts = {}
    for number in range(rows):
        for seed in seeds:
            results = made(noisy(0.5, seed), seed, {"n": number}, class_names=names)
            folder = write(tmp_path / f"{number:02d}" / str(seed), results)
            counts[folder] = rng.integers(1, 9, size=(len(names), len(names)))
    return Comparison.of(tmp_path), counts


def test_accuracy_is_the_share_on_the_diagonal():
    matrix = np.array([[3, 1, 0], [0, 0, 0], [2, 2, 4]])
    assert class_accuracy(matrix) == pytest.approx([0.75, np.nan, 0.5], nan_ok=True)


def test_csv_has_every_count(tmp_path):
    found, counts = counted(tmp_path, ["cat", "a, b"])
    lines = list(csv.DictReader(io.StringIO(class_csv(found, counts))))
    by_cell = {
        (x["row"], int(x["seed"]), x["class"], x["taken_for"]): int(x["rows"])
        for x in lines
    }
    for folder, matrix in counts.items():
        row = f"n {int(folder.parent.name)}"
        for i, held in enumerate(("cat", "a, b")):
            for j, taken in enumerate(("cat", "a, b")):
                key = (row, int(folder.name), held, taken)
                assert by_cell.get(key, 0) == matrix[i, j]


@pytest.mark.slow
def test_points_are_means_over_seeds(tmp_path):
    found, counts = counted(tmp_path, ["cat", "dog"])
    classes, _ = class_figures(found, counts)
    (axes,) = classes.figure.axes
    first, _ = (bars.lines[0] for bars in axes.containers)
    own = [m for folder, m in counts.items() if folder.parent.name == "00"]
    means = np.mean([class_accuracy(matrix) for matrix in own], axis=0)
    assert list(first.get_ydata()) == pytest.approx(100 * means)


@pytest.mark.slow
def test_matrices_are_in_percent_of_the_class(tmp_path):
    found, counts = counted(tmp_path, ["cat", "dog"])
    _, confusion = class_figures(found, counts)
    shown = confusion.figure.axes[0].images[0].get_array()
    total = sum(m for folder, m in counts.items() if folder.parent.name == "00")
    np.testing.assert_allclose(shown, 100 * total / total.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("classes", "rows", "width"),
    [(3, 1, "one"), pytest.param(60, 7, "two", marks=pytest.mark.slow)],
)
def test_pictures_are_whole(tmp_path, classes, rows, width):
    names = [f"a class with a long $name {i}" for i in range(classes)]
    found, counts = counted(tmp_path, names, rows, seeds=(1,))
    next(iter(counts.values()))[0] = 0  # a class without rows
    pictures = class_figures(found, counts, width)
    parts = ["confusion_part1", "confusion_part2"] if rows > 6 else ["confusion"]
    assert [p.name for p in pictures] == ["classes", *parts]
    for picture in pictures:
        assert picture.figure.get_figheight() < 11
        raw = render(picture, "png")
        pixels = np.asarray(Image.open(io.BytesIO(raw)).convert("L"))
        for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
            assert edge.min() == 255, f"{picture.name} touches its edge"


def test_without_counts_there_are_no_pictures(tmp_path):
    found, _ = counted(tmp_path, ["cat", "dog"])
    assert class_figures(found, {}) == []


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_is_scikit_learns(seed):
    sklearn = pytest.importorskip("sklearn.metrics")
    matrix = np.random.default_rng(seed).integers(0, 6, size=(4, 4))
    matrix[seed % 4] += 1  # so that there are rows
    held, taken = (
        np.repeat(np.indices((4, 4))[axis].ravel(), matrix.ravel()) for axis in (0, 1)
    )
    labels = sorted(set(held.tolist()))
    wanted = sklearn.f1_score(held, taken, labels=labels, average="macro")
    assert macro_f1(matrix) == pytest.approx(wanted)


def test_a_note_has_the_mean_over_runs(tmp_path):
    found, counts = counted(tmp_path, ["cat", "dog"])
    (note,) = macro_f1_notes(found, counts)
    own = [macro_f1(m) for folder, m in counts.items() if folder.parent.name == "00"]
    assert f"n 0 {100 * np.mean(own):.2f}%" in note
