"""Read files of embeddings to classify: npz, npy or csv."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from federatedscope_ggeur.data import read_npz
from federatedscope_ggeur.data.named_labels import is_named, numbers_of_names
from federatedscope_ggeur.errors import DataError, shown

ROW_FILES = (".npz", ".npy", ".csv")
_LABEL = "label"


class RowFile(NamedTuple):
    """The embeddings in a file, one per row.

    Attributes
    ----------
    path : str
    features : ndarray of shape (n, D)
    labels : ndarray of shape (n,), int64, or None
        Class numbers. None if the file has no labels.
    """

    path: str
    features: np.ndarray
    labels: np.ndarray | None


def read_rows(path: str, class_names: Sequence[str]) -> RowFile:
    """Read embeddings from an npz, npy or csv file.

    An npz file holds ``features`` and, if they are known, ``labels``. An npy file holds
    the features alone. Each line of a csv file holds the numbers of one row; the first
    line may hold titles instead. A column with the title ``label`` holds labels. Labels
    are class numbers or class names.

    Raises
    ------
    DataError
        The file cannot be read; the message names the problem.
    """
    read = {".csv": _read_csv, ".npy": _read_npy}.get(path[-4:], _read_npz)
    features, labels = read(Path(path))
    if features.ndim != 2 or features.dtype.kind not in "fiu":
        raise DataError(
            f"{path}: 'features' must be numbers of shape [n, D], got {features.dtype} "
            f"of shape {list(features.shape)}"
        )
    if labels is None:
        return RowFile(path, features, None)
    if labels.shape != (len(features),):
        raise DataError(
            f"{path}: there are {labels.size} labels but {len(features)} rows; give "
            "every row one label"
        )
    if is_named(labels):
        labels = numbers_of_names(labels, class_names, path)
    return RowFile(path, features, labels)


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        held = read_npz(path, ("features",), ("labels",))
    except OSError as error:
        raise DataError(f"{path}: cannot read the file: {error.strerror}") from None
    return held["features"], held.get("labels")


def _read_npy(path: Path) -> tuple[np.ndarray, None]:
    try:
        with open(path, "rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False), None
    except OSError as error:
        raise DataError(f"{path}: cannot read the file: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path}: the file is no npy array: {error}") from None


def _read_csv(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot read the file: {error}") from None
    titles = [] if not lines or _is_number(lines[0][0]) else lines.pop(0)
    if not lines:
        raise DataError(f"{path}: the file has no rows of numbers")
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
            problem = (
                f"{shown(wrong[0])} is no number"
                if wrong
                else "it has not as many columns as the first row"
            )
            raise DataError(f"{path}: row {number}: {problem}")
    return np.array(lines).astype(float), labels


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
