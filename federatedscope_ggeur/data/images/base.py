"""The result of an image reader: labelled images by domain and split, none loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.settings import Key, Registry

from ..parts import registered

Loader = Callable[[int], Image.Image]


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images of one domain that are not loaded yet.

    Parameters
    ----------
    labels : array of shape [n], int64
        The class numbers; n may be 0.
    keys : tuple of str, of length n
        The name of each image within the data set, e.g. its path below the root, or
        ``"t10k-images-idx3-ubyte#17"``. No two are equal.
    stamps : tuple of str, of length n
        Texts that change if an image may have changed, e.g. size and time of its file.
    load : callable (row) -> PIL image, mode RGB
        Loads one image. Several processes may call this function. If an image cannot be
        read, it raises a `DataError` with the path.
    users : array of shape [n], int64, or None
        The number of the user who made each image, from 0 within the domain. None if
        unknown.
    paths : tuple of str, of length n, or None
        The file of each image. None if images share files.

    Raises
    ------
    DataError
        The lengths differ.
    """

    labels: np.ndarray
    keys: tuple[str, ...]
    stamps: tuple[str, ...]
    load: Loader
    users: np.ndarray | None = None
    paths: tuple[str, ...] | None = None

    def __post_init__(self):
        columns = [self.labels, self.keys, self.stamps]
        columns += [] if self.users is None else [self.users]
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise DataError(
                f"labels, keys, stamps and users must have the same length, but have "
                f"{lengths}"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ImageDomain:
    """The images of one domain.

    Parameters
    ----------
    name : str
    train : Images
        The training images; all images if the data come without a split.
    test : Images or None
        The test images. None if the data come without a split; `data.splits` then makes
        one.
    """

    name: str
    train: Images
    test: Images | None


@dataclass(frozen=True)
class ImageDataSet:
    """An image data set, as an image reader returns it.

    Parameters
    ----------
    name : str
        The name of the data set, e.g. ``"pacs"``.
    domains : sequence of ImageDomain
        At least one domain, in a fixed order. Their names differ.
    class_names : tuple of str
        The name of class c stands at position c. The order is fixed.
    grey : bool
        Whether all images are grey. Encoders that keep pixels then keep one channel.
    """

    name: str
    domains: Sequence[ImageDomain]
    class_names: tuple[str, ...]
    grey: bool = False


ImageReader = Callable[..., ImageDataSet]
IMAGE_READERS: Registry[ImageReader] = Registry("image reader", "data.type")


def register_image_reader(
    name: str, settings: Sequence[Key] = (), bundled: bool = False
) -> Callable[[ImageReader], ImageReader]:
    """Decorator: register a function that reads the image data set ``<name>@ggeur``.

    The function is called as ``reader(root, **own)`` with its own `settings`,
    ``ggeur.<name>.*``. It finds and checks the files and loads none of the images. A
    setting that changes how an image looks must be part of the images' `stamps`.
    `bundled` says that the images come with the program; `root` is then ignored.
    """
    return registered(IMAGE_READERS, name, settings, ("root",), bundled=bundled)
