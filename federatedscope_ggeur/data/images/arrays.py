"""Images that are packed in array files: idx (MNIST), libsvm (USPS), mat (SVHN, SYN).

torchvision's data sets read these files too. But they read all pixels at once, and
MNIST only if it is not compressed. Here labels are read first, and pixels when they are
needed.
"""

from __future__ import annotations

import bz2
import gzip
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from federatedscope_ggeur.errors import DataError

from .files import stamp_of
from .layout import Images

#: Reads the pixels of a file: uint8 [n, H, W] (grey) or [n, H, W, 3] (RGB).
PixelReader = Callable[[str], np.ndarray]

_IDX_UBYTE = 8
_USPS_SIDE = 16


@dataclass(frozen=True)
class PackedFile:
    """One file with the labels of its images. The pixels are read later.

    Parameters
    ----------
    path : str
    labels : array of shape [n]
    read_pixels : PixelReader
        Reads the pixels. It must be picklable, so that it can be sent to another
        process. Its errors need not name the path.
    """

    path: str
    labels: np.ndarray
    read_pixels: PixelReader


@dataclass
class PackedLoader:
    """Loads image i of several packed files. Images are counted over all files.

    The pixels of a file are read with its first image, and kept. They are not sent
    along when the loader is sent to another process. Before processes are forked,
    `prepare` reads all pixels once, so that the processes share them.
    """

    files: Sequence[PackedFile]
    pixels: dict[int, np.ndarray] = field(default_factory=dict)

    def __getstate__(self) -> dict:
        return {"files": self.files, "pixels": {}}

    def __call__(self, row: int) -> Image.Image:
        number = 0
        while row >= len(self.files[number].labels):
            row -= len(self.files[number].labels)
            number += 1
        image = np.ascontiguousarray(self._pixels_of(number)[row])
        return Image.fromarray(image).convert("RGB")

    def prepare(self) -> None:
        """Read the pixels of all files.

        Raises
        ------
        DataError
            A file is damaged or missing. The error names the file.
        """
        for number in range(len(self.files)):
            self._pixels_of(number)

    def _pixels_of(self, number: int) -> np.ndarray:
        if number not in self.pixels:
            file = self.files[number]
            with damage_named(file.path):
                pixels = file.read_pixels(file.path)
            if len(pixels) != len(file.labels):
                raise DataError(
                    f"{file.path}: the file holds {len(pixels)} images, but there are "
                    f"{len(file.labels)} labels. Fetch the files again."
                )
            self.pixels[number] = pixels
        return self.pixels[number]


def images_from_arrays(root: Path, files: Sequence[PackedFile]) -> Images:
    """Make `Images` of all rows of `files`. Keys are ``<path below root>#<row>``."""
    keys, stamps = [], []
    for file in files:
        below = Path(os.path.relpath(file.path, root)).as_posix()
        keys += [f"{below}#{row}" for row in range(len(file.labels))]
        stamps += [stamp_of(file.path)] * len(file.labels)
    labels = np.concatenate([file.labels for file in files]).astype(np.int64)
    return Images(labels, tuple(keys), tuple(stamps), PackedLoader(files))


@contextmanager
def damage_named(path: str | os.PathLike) -> Iterator[None]:
    """Turn any error of a damaged file into a `DataError` that names the path."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error} Fetch the file again.") from None
    except Exception as error:  # damaged files fail in many ways
        problem = str(error) or type(error).__name__
        raise DataError(
            f"{path}: the file cannot be read, because it is damaged or has another "
            f"format ({problem}). Fetch the file again."
        ) from error


def check_digits(labels: np.ndarray) -> np.ndarray:
    """`labels` as int64. Labels that are not digits are refused."""
    bad = labels[(labels < 0) | (labels > 9) | (labels != np.floor(labels))]
    if len(bad):
        raise DataError(f"the file holds the label {bad[0]}, which is no digit.")
    return labels.astype(np.int64)


def idx_file(images: str, labels: str) -> PackedFile:
    """Open MNIST's pair of idx files of images and labels, plain or gzip-compressed.

    Raises
    ------
    DataError
        A file is damaged. The error names the file.
    """
    with damage_named(labels):
        digits = check_digits(_read_idx(labels, 1))
    return PackedFile(images, digits, partial(_read_idx, ndim=3))


def _read_idx(path: str, ndim: int) -> np.ndarray:
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        head = file.read(4 * (ndim + 1))
        if len(head) < 4 * (ndim + 1) or head[:4] != bytes((0, 0, _IDX_UBYTE, ndim)):
            raise DataError(
                f"the file is no idx file of bytes with {ndim} dimension(s)."
            )
        shape = [int(size) for size in np.frombuffer(head, ">u4", ndim, offset=4)]
        data = file.read(math.prod(shape) + 1)
    return np.frombuffer(data, np.uint8).reshape(shape)


def usps_file(path: str) -> PackedFile:
    """Open USPS in libsvm's text format, bz2-compressed: ``<label> <index>:<value>
    ...``.

    Labels are 1 to 10 for the digits 0 to 9. The pixels 1 to 256, row by row, have
    values from -1 (black) to 1 (white). Pixels that are left out are 0.
    """
    with damage_named(path), bz2.open(path) as lines:
        labels = np.array([float(line.split(None, 1)[0]) for line in lines])
        return PackedFile(path, check_digits(labels - 1), _read_usps)


def _read_usps(path: str) -> np.ndarray:
    # Imported here, because it is slow to import and other readers do not need it.
    from sklearn.datasets import load_svmlight_file

    size = _USPS_SIDE**2
    rows, _ = load_svmlight_file(
        path, n_features=size, dtype=np.float32, zero_based=False
    )
    values = rows.toarray()
    if not (np.abs(values) <= 1).all():
        raise DataError("the file holds values outside -1..1.")
    # Cut off and not rounded, to get the same bytes as torchvision.
    pixels = ((values + 1) / 2 * 255).astype(np.uint8)
    return pixels.reshape(-1, _USPS_SIDE, _USPS_SIDE)


def mat_file(path: str) -> PackedFile:
    """Open a file in SVHN's format: ``X`` [H, W, 3, n] in bytes, and ``y`` [n, 1].

    SYN has this format, too. SVHN has the label 10 for the digit 0.
    """
    with damage_named(path):
        labels = _read_mat(path, "y").reshape(-1)
        digits = check_digits(np.where(labels == 10, 0, labels))
    return PackedFile(path, digits, _read_mat_pixels)


def _read_mat_pixels(path: str) -> np.ndarray:
    pixels = _read_mat(path, "X")
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[2] != 3:
        raise DataError(
            f"the array 'X' must hold bytes [H, W, 3, n], but holds {pixels.dtype} "
            f"{list(pixels.shape)}."
        )
    return pixels.transpose(3, 0, 1, 2)


def _read_mat(path: str, name: str) -> np.ndarray:
    # Imported here, because it is slow to import and other readers do not need it.
    from scipy.io import loadmat

    found = loadmat(path, variable_names=[name]).get(name)
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iuf":
        raise DataError(f"the file has no intact array '{name}' of numbers.")
    return found
