"""Public rows that a release corrects: ``ggeur.privacy.dp.prior``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur.data.folder import read_npz
from federatedscope_ggeur.errors import DataError, setting
from federatedscope_ggeur.geometry.noisy_release import PublicRows


def public_rows(
    path: str,
    num_classes: int,
    dim: int,
    prepare: Callable[[Tensor], Tensor] | None,
) -> PublicRows:
    """What the rows of an npz file say of the classes.

    Parameters
    ----------
    path : str
    num_classes, dim : int
        C, and D of the rows once they are prepared.
    prepare : callable, optional
        What is made of the run's own rows before anything else.

    Raises
    ------
    DataError
        The file cannot be read, or some class has no row in it.
    """
    file, where = Path(path).expanduser(), setting("dp.prior")
    if not file.is_file():
        raise DataError(f"{where}: there is no file '{path}'")
    held = read_npz(file)
    features = torch.as_tensor(held["features"]).float()
    labels = torch.as_tensor(held["labels"]).long()
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise DataError(f"{where}: '{path}' has no label for each row")
    rows = features if prepare is None else prepare(features)
    if rows.shape[1] != dim:
        raise DataError(
            f"{where}: '{path}' has rows of {features.shape[1]} dimensions, which are "
            "not the embeddings of the run"
        )
    if not rows.isfinite().all():
        raise DataError(f"{where}: '{path}' holds NaN or infinity")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise DataError(f"{where}: '{path}' has labels beyond 0..{num_classes - 1}")
    missing = sorted(set(range(num_classes)) - set(labels.tolist()))
    if missing:
        raise DataError(
            f"{where}: '{path}' has no row of class {missing[0]}; every class needs "
            "one or more"
        )
    return PublicRows.of(rows, labels, num_classes)
