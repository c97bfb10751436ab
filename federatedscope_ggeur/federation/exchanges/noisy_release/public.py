"""Reads the public rows of ``ggeur.privacy.dp.prior``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur.data.rows import read_npz
from federatedscope_ggeur.errors import DataError, setting
from federatedscope_ggeur.geometry.noisy_release import PublicRows


def public_rows(
    path: str, num_classes: int, dim: int, prepare: Callable[[Tensor], Tensor] | None
) -> PublicRows:
    """Class statistics of the public rows in an npz file.

    Parameters
    ----------
    path : str
    num_classes, dim : int
        C, and D after `prepare`.
    prepare : callable, optional
        The preparation of the run's own rows, for the public rows, too.

    Raises
    ------
    DataError
        The file cannot be read, or it has no row of some class.
    """
    file, where = Path(path).expanduser(), setting("dp.prior")
    if not file.is_file():
        raise DataError(f"{where}: there is no file '{path}'")
    held = read_npz(file)
    features = torch.as_tensor(held["features"]).float()
    labels = torch.as_tensor(held["labels"]).long()
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise DataError(f"{where}: '{path}' must have one label for each row")
    rows = features if prepare is None else prepare(features)
    if rows.shape[1] != dim:
        raise DataError(
            f"{where}: '{path}' has rows of {features.shape[1]} dimensions; the run's "
            "embeddings have another number of dimensions"
        )
    if not rows.isfinite().all():
        raise DataError(f"{where}: '{path}' holds NaN or infinity")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise DataError(f"{where}: '{path}' has labels outside 0..{num_classes - 1}")
    missing = sorted(set(range(num_classes)) - set(labels.tolist()))
    if missing:
        raise DataError(
            f"{where}: '{path}' has no row of class {missing[0]}; every class needs "
            "at least one"
        )
    return PublicRows.of(rows, labels, num_classes)
