"""The bundled handwritten digits as images (``data.type: bundled_digits@ggeur``)."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from federatedscope_ggeur.rng import numpy_generator
from federatedscope_ggeur.settings import Key, one_of

from ..split import deal_evenly
from .layout import ImageDataSet, ImageDomain, Images, register_image_reader

#: The digits' largest value; the smallest is 0.
WHITE = 16.0
_DIGITS_FILE = ("datasets", "data", "digits.csv.gz")
DIGITS = tuple(str(digit) for digit in range(10))
_BLUR_SIGMA = 0.8
_NOISE_STD = 4.0
_DATA_SEED = 0  # decides domains and noise, so it is part of the data set
_IMAGING = Key(
    "imaging",
    True,
    "Four domains (clean, inverted, blurred, noisy), each with a quarter of the "
    "digits; False: one domain, digits, with all 1,797 as they are.",
    one_of(True, False),
)


def imaged_digits() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Divide scikit-learn's 1,797 real 8x8 digits into four domains of disjoint
    samples.

    The domains, in order: clean; inverted (black and white exchanged); blurred
    (Gaussian, sigma 0.8 pixels); noisy (Gaussian, std 4 of a range of 16, clipped). The
    domain of each sample is fixed, and so is the noise.

    Returns
    -------
    dict from domain to (images [n, 8, 8] of floats from 0 to `WHITE`, labels [n])
    """
    images, digits = _digits()
    rng = numpy_generator(_DATA_SEED, "digits_quickstart", "domains")
    imaging = {
        "clean": lambda images: images,
        "inverted": lambda images: WHITE - images,
        "blurred": _blur,
        "noisy": _add_noise,
    }
    parts = deal_evenly(digits, len(imaging), rng)
    return {
        name: (view(images[rows]), digits[rows])
        for (name, view), rows in zip(imaging.items(), parts)
    }


@register_image_reader("bundled_digits", [_IMAGING], bundled=True)
def read_bundled_digits(root: str | Path, imaging: bool = True) -> ImageDataSet:
    """Read the bundled 8x8 digits as grey images, in four domains. `root` is ignored.

    With `imaging`, the domains are those of `imaged_digits`. Without it, one domain,
    digits, has all 1,797 images as they are. `data.splits` makes the split. Images have
    8 x 8 pixels; `ggeur.encoder.image_size` 8 keeps them.
    """
    sets = imaged_digits() if imaging else {"digits": _digits()}
    domains = [
        ImageDomain(name, _as_images(images, labels), None)
        for name, (images, labels) in sets.items()
    ]
    return ImageDataSet("bundled_digits", domains, DIGITS, grey=True)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    # Importing scikit-learn takes longer than a run on its digits.
    package = find_spec("sklearn")
    for place in (package and package.submodule_search_locations) or ():
        file = Path(place, *_DIGITS_FILE)
        if file.exists():
            with gzip.open(file, "rt", encoding="ascii") as lines:
                table = np.loadtxt(lines, delimiter=",")
            return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits  # another release keeps them elsewhere

    digits = load_digits()
    return digits.images, digits.target


def _as_images(images: np.ndarray, labels: np.ndarray) -> Images:
    grey = np.rint(images * (255 / WHITE)).astype(np.uint8)
    keys = tuple(str(row) for row in range(len(grey)))
    return Images(labels.astype(np.int64), keys, ("",) * len(grey), _GreyLoader(grey))


@dataclass(frozen=True, eq=False)
class _GreyLoader:
    grey: np.ndarray

    def __call__(self, row: int) -> Image.Image:
        return Image.fromarray(self.grey[row]).convert("RGB")


def _blur(images: np.ndarray) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(images, sigma=(0, _BLUR_SIGMA, _BLUR_SIGMA))


def _add_noise(images: np.ndarray) -> np.ndarray:
    rng = numpy_generator(_DATA_SEED, "digits_quickstart", "noise")
    return np.clip(images + rng.normal(0, _NOISE_STD, images.shape), 0, WHITE)
