"""The bundled handwritten digits as embeddings (``digits_quickstart@ggeur``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from .embeddings import DataSet, Embeddings
from .images.bundled_digits import DIGITS, WHITE, imaged_digits
from .registry import register_reader
from .split import split_domain


def read_digits_quickstart(splits: Sequence[float], seed: int) -> DataSet:
    """Read scikit-learn's 1,797 real 8x8 digits as four domains of disjoint samples.

    The domains are those of `imaged_digits`: clean, inverted, blurred, noisy. The
    embeddings are histograms of oriented gradients, D = 324. Each sample always has the
    same domain. Only the train/test split depends on `seed`.

    Parameters
    ----------
    splits : [train, val, test]
        Fractions of each domain, stratified by class.
    seed : int

    Raises
    ------
    ConfigError
        `splits` is impossible.
    """
    return DataSet(
        tuple(split_domain(rows, splits, seed) for rows in _embedded()),
        class_names=DIGITS,
        encoder="hog(orientations=9, pixels_per_cell=2, cells_per_block=2, sqrt)",
    )


@register_reader("digits_quickstart", bundled=True)
def _read(root: str, splits: Sequence[float], seed: int) -> DataSet:
    """Read the bundled digits as four domains. `root` is ignored."""
    return read_digits_quickstart(splits, seed)


# Kept, because the embeddings are always the same and take longer than a short run.
@lru_cache(maxsize=1)
def _embedded() -> tuple[Embeddings, ...]:
    """All rows of each domain, embedded."""
    return tuple(
        Embeddings.from_numpy(_hog(images), labels, name, "digits_quickstart")
        for name, (images, labels) in imaged_digits().items()
    )


def _hog(images: np.ndarray) -> np.ndarray:
    """HOG features [n, 324], float32, of `images` [n, 8, 8] with values in [0, 16]."""
    from skimage.feature import hog

    # HOG ignores the sign of gradients, so an inverted image would look just like the
    # clean one. The square root, HOG's usual gamma correction, tells bright from dark.
    histograms = [
        hog(image / WHITE, 9, (2, 2), (2, 2), transform_sqrt=True) for image in images
    ]
    return np.stack(histograms).astype("float32")
