"""What an image reader finds: labelled images by domain and split, loaded singly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from federatedscope_ggeur.data.parts import registered
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.settings import Key, Registry

Loader = Callable[[int], Image.Image]


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images of one domain, not yet loaded; n may be 0.

    Parameters
    ----------
    labels : array of shape [n], int64
        Class numbers.
    keys : tuple of str, of length n
        What identifies each image within the data set, e.g. its path below the root,
        or ``"t10k-images-idx3-ubyte#17"``. No two are equal.
    stamps : tuple of str, of length n
        Changes when an image's content may have changed: size and time of its file.
    load : callable (row) -> PIL image, mode RGB
        Loads one image; may be called by several processes. Raises `DataError` with the
        path of an image that cannot be read.
    users : array of shape [n], int64, or None
        Who made each image, numbered within the domain from 0, where the data say it.
    paths : tuple of str, of length n, or None
        The file of each image, where every one has its own.

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
                f"labels, keys, stamps and users differ in length: {lengths}"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ImageDomain:
    """One domain's images.

    Parameters
    ----------
    name : str
    train : Images
        All of them where the data come without a split.
    test : Images or None
        None where the data come without a split: `data.splits` makes one.
    """

    name: str
    train: Images
    test: Images | None


@dataclass(frozen=True)
class ImageDataSet:
    """What an image reader returns.

    Parameters
    ----------
    name : str
        Of the data set, e.g. ``"pacs"``.
    domains : sequence of ImageDomain
        At least one, in a stated, stable order; names differ.
    class_names : tuple of str
        The name of class c stands at position c, in a stated, stable order.
    grey : bool
        Whether all images are grey: whoever keeps pixels then keeps one channel.
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
    """Decorator: the function reads ``data.type: <name>@ggeur``, an image data set.

    The function is called as ``reader(root, **own)`` with its own `settings`,
    ``ggeur.<name>.*``; it finds and checks the files and loads none of the images. A
    setting that changes what an image looks like belongs in the images' `stamps`.
    `bundled` says that its images come with the program, and `root` is ignored.
    """
    return registered(IMAGE_READERS, name, settings, ("root",), bundled=bundled)
