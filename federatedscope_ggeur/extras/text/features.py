"""`TextFeatures`, a unit vector for each class, and the file that a user may give."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import DataError

#: CLIP models have scales up to 100. A far larger scale is a mistake.
_LARGEST_SCALE = 1e6


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """The text features of each class.

    Attributes
    ----------
    features : Tensor of shape (C, D), float32
        One vector w_c of length 1 for each class.
    scale : float
        The factor s in the logits ``s <x/|x|, w_c>``.
    key : str
        SHA-256 of everything that the features depend on.
    """

    features: Tensor
    scale: float
    key: str


def unit(rows: Tensor) -> Tensor:
    """Scale rows of shape (..., D) to length 1, in float64."""
    return torch.nn.functional.normalize(rows.double(), dim=-1)


def mean_features(each: Tensor) -> Tensor:
    """The mean text feature of each class: shape (C, D), float32.

    For features f [C, T, D], it is ``w_c = norm(mean_t norm(f_ct))``.

    Radford et al., 2021, section 3.1.4.
    """
    return unit(unit(each).mean(dim=1)).float()


def read_text_file(path: Path, num_classes: int, dim: int) -> TextFeatures:
    """Read text features from ``text.npz``.

    The file holds ``features`` [C, D], which are scaled to length 1, and
    ``logit_scale``. The latter is the factor s itself and not its logarithm (100 for
    OpenAI's ViT-B/16).

    Raises
    ------
    DataError
        The file is missing or damaged, or its shapes do not fit the data.
    """
    how = "numpy.savez(path, features=..., logit_scale=100.0), a row for each class"
    try:
        with np.load(path, allow_pickle=False) as archive:
            rows = np.asarray(archive["features"], dtype=np.float64)
            scale = float(np.asarray(archive["logit_scale"]).reshape(()))
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: the file does not exist. Write it with {how}."
        ) from error
    except Exception as error:  # a damaged zip fails in many ways
        raise DataError(
            f"{path}: the file cannot be read ({error}). Write it with {how}."
        ) from error
    if rows.shape != (num_classes, dim):
        raise DataError(
            f"{path}: 'features' has shape {list(rows.shape)}, but the data have "
            f"{num_classes} classes and D = {dim}."
        )
    lengths = np.linalg.norm(rows, axis=1)
    if not np.isfinite(rows).all() or not (lengths > 0).all():
        raise DataError(
            f"{path}: 'features' holds NaN, infinity or a row of zeros. Write it again."
        )
    if not math.isfinite(scale) or not 0 < scale <= _LARGEST_SCALE:
        raise DataError(
            f"{path}: 'logit_scale' must be above 0 and at most {_LARGEST_SCALE:g}, "
            f"but is {scale:g}."
        )
    features = torch.from_numpy(rows / lengths[:, None]).float()
    digest = hashlib.sha256(features.numpy().tobytes() + repr(scale).encode())
    return TextFeatures(features, scale, digest.hexdigest())
