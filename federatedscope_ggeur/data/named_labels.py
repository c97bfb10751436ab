"""Turn labels that are names of classes into numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from federatedscope_ggeur.errors import DataError, shown


def numbers_of_names(
    labels: np.ndarray, class_names: Sequence[str], where: str
) -> np.ndarray:
    """The numbers of the classes that `labels` name: int64 array of shape [n].

    Raises
    ------
    DataError
        A label is not the name of a class.
    """
    if labels.ndim != 1:
        raise DataError(
            f"{where}: 'labels' must have 1 dimension, but has {labels.ndim}."
        )
    place = {name: number for number, name in enumerate(class_names)}
    names = labels.astype(str).tolist()
    for row, name in enumerate(names):
        if name not in place:
            raise DataError(
                f"{where}: row {row} has the label {shown(name)}, which is none of the "
                f"{len(place)} classes. Correct the label, or name the class."
            )
    return np.array([place[name] for name in names], dtype=np.int64)


def is_named(labels: np.ndarray) -> bool:
    """Whether `labels` are texts and not numbers.

    The columns of data frames hold texts as objects.
    """
    if labels.dtype.kind == "O" and labels.size:
        return all(isinstance(label, str) for label in labels.flat)
    return labels.dtype.kind in "US"
