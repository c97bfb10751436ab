"""Files of embeddings to predict: npz or csv, with labels or without."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from federatedscope_ggeur.data import read_npz
from federatedscope_ggeur.data.named_labels import is_named, numbers_of_names
from federatedscope_ggeur.errors import DataError, shown

ROW_FILES = (".npz", ".csv")
_LABEL = "label"


class RowFile(NamedTuple):
    """The rows of a file.

    Attributes
    ----------
    path : str
    features : ndarray of shape (n, D)
    labels : ndarray of shape (n,), int64, or None
        Class numbers, where the file has them.
    """

    path: str
    features: np.ndarray
    labels: np.ndarray | None


def read_rows(path: str, class_names: Sequence[str]) -> RowFile:
    """Read the rows of an npz or csv file.

    An npz file holds ``features`` and, if they are known, ``labels``. A csv file holds
    numbers, a row a line, with titles or without; a column titled ``label`` holds
    labels. Labels are class numbers or names.

    Raises
    ------
    DataError
        The file cannot be read; the problem is named.
    """
    read = _read_csv if path.endswith(".csv") else _read_npz
    features, labels = read(Path(path))
    if features.ndim != 2 or features.dtype.kind not in "fiu":
        raise DataError(
            f"{path}: 'features' must be numbers of shape [n, D], got {features.dtype} "
            f"of shape {list(features.shape)}"
        )
    if labels is None:
        return RowFile(path, features, None)
    if labels.shape != (len(features),):
        raise DataError(f"{path}: {labels.size} labels for {len(features)} rows")
    if is_named(labels):
        labels = numbers_of_names(labels, class_names, path)
    return RowFile(path, features, labels)


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        held = read_npz(path, ("features",), ("labels",))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    return held["features"], held.get("labels")


def _read_csv(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    titles = [] if not lines or _is_number(lines[0][0]) else lines.pop(0)
    if not lines:
        raise DataError(f"{path}: has no rows")
    place = titles.index(_LABEL) if _LABEL in titles else None
    labels = None
    if place is not None and all(len(line) > place for line in lines):
        labels = np.array([line.pop(place) for line in lines])
        if all(map(_is_number, labels)):
            labels = labels.astype(float)
    width = len(lines[0])
    for number, line in enumerate(lines, 1):
        wrong = [cell for cell in line if not _is_number(cell)]
        if wrong or len(line) != width:
            problem = f"{shown(wrong[0])} is no number" if wrong else "other columns"
            raise DataError(f"{path}: row {number}: {problem}")
    return np.array(lines).astype(float), labels


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
