"""The bundled handwritten digits as four domains (``digits_quickstart@ggeur``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from federatedscope_ggeur.data.embeddings import DataSet, Embeddings
from federatedscope_ggeur.data.registry import register_reader
from federatedscope_ggeur.data.split import deal_evenly, split_domain
from federatedscope_ggeur.rng import numpy_generator

_WHITE = 16.0
_BLUR_SIGMA = 0.8
_NOISE_STD = 4.0
_DATA_SEED = 0  # part of the data set: who is in which domain, and the noise


def read_digits_quickstart(splits: Sequence[float], seed: int) -> DataSet:
    """scikit-learn's 1,797 real 8x8 digits as four domains of disjoint samples.

    The domains, in order: clean; inverted (black and white exchanged); blurred
    (Gaussian, sigma 0.8 pixels); noisy (Gaussian, std 4 of a range of 16, clipped). All
    are embedded by histograms of oriented gradients, D = 324. Which sample is in which
    domain is fixed; only the train/test split depends on `seed`.

    Parameters
    ----------
    splits : [train, val, test]
        Fractions of each domain, stratified by class.
    seed : int

    Raises
    ------
    ConfigError
        Impossible `splits`.
    """
    # Imported here: slow to import, and of no use to the other readers.
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = numpy_generator(_DATA_SEED, "digits_quickstart", "domains")
    imaging = {
        "clean": lambda images: images,
        "inverted": lambda images: _WHITE - images,
        "blurred": _blur,
        "noisy": _add_noise,
    }
    domains = []
    parts = deal_evenly(digits.target, len(imaging), rng)
    for (name, view), rows in zip(imaging.items(), parts):
        features = _hog(view(digits.images[rows]))
        labels = digits.target[rows]
        found = Embeddings.from_numpy(features, labels, name, "digits_quickstart")
        domains.append(split_domain(found, splits, seed))
    return DataSet(
        tuple(domains),
        class_names=tuple(str(digit) for digit in range(10)),
        encoder="hog(orientations=9, pixels_per_cell=2, cells_per_block=2, sqrt)",
    )


@register_reader("digits_quickstart")
def _read(root: str, splits: Sequence[float], seed: int) -> DataSet:
    """The bundled digits as four domains; `root` is ignored."""
    return read_digits_quickstart(splits, seed)


def _blur(images: np.ndarray) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(images, sigma=(0, _BLUR_SIGMA, _BLUR_SIGMA))


def _add_noise(images: np.ndarray) -> np.ndarray:
    rng = numpy_generator(_DATA_SEED, "digits_quickstart", "noise")
    return np.clip(images + rng.normal(0, _NOISE_STD, images.shape), 0, _WHITE)


def _hog(images: np.ndarray) -> np.ndarray:
    """Features [n, 324] float32 of `images` [n, 8, 8] with values in [0, 16]."""
    from skimage.feature import hog

    # Gradients carry no sign, so an inverted image would look just like the clean one;
    # the square root, HOG's usual gamma correction, tells bright from dark.
    histograms = [
        hog(image / _WHITE, 9, (2, 2), (2, 2), transform_sqrt=True) for image in images
    ]
    return np.stack(histograms).astype("float32")
