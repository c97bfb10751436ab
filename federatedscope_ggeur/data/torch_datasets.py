"""Embed image data sets in torchvision's style, through the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from federatedscope_ggeur.errors import ConfigError, DataError, shown

from .encoders import EncoderSettings
from .encoding import Encoded, EncodingSettings, encoded, find_images
from .images.layout import ImageDataSet, ImageDomain, Images
from .labels import checked_names


def embed_datasets(
    datasets: Mapping[str, Any],
    encoder: str | EncoderSettings,
    *,
    test: Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
    cache: str = "embeddings_cache",
    device: str = "auto",
) -> Encoded:
    """Embed each client's images, or take their features from the cache.

    Images are recognised by their content, so each call loads all of them once.

    Parameters
    ----------
    datasets : mapping from client to data set
        A data set has a length. ``dataset[i]`` is a PIL image and a class number, as in
        torchvision without a transform. Or it is a mapping with ``image`` and
        ``label``, as in Hugging Face's data sets.
    encoder : str or EncoderSettings
        The encoder. A name stands for the encoder with default settings.
    test : mapping from client to data set, optional
        The images to test on.
    class_names : sequence of str, optional
        The names of the classes. By default ``classes`` of the first data set, or "0",
        "1", ...
    cache : str
        The folder of the embedding cache.
    device : str
        The device of the encoder: auto, cpu, cuda, ...

    Raises
    ------
    ConfigError
        There is no data set, or the encoder cannot be built.
    DataError
        A data set returns something other than an image and a label.

    Returns
    -------
    Encoded
        The features. Its domains are the clients.
    """
    if not datasets:
        raise ConfigError(
            "datasets: must hold a data set for each client, but is empty"
        )
    test = test or {}
    unknown = set(test) - set(datasets)
    if unknown:
        raise ConfigError(
            f"test: {min(unknown)!r} is not the name of a client in datasets"
        )
    domains = [
        ImageDomain(name, _images(name, held), _images(name, test.get(name, ())))
        for name, held in datasets.items()
    ]
    if class_names is None:
        class_names = _same_classes({**datasets, **test})
    if class_names is None:
        labels = [part.labels for one in domains for part in (one.train, one.test)]
        number = max((int(part.max()) for part in labels if len(part)), default=-1) + 1
        class_names = list(map(str, range(number)))
    names = checked_names(class_names, "class_names")
    images = ImageDataSet("datasets", domains, names)
    if isinstance(encoder, str):
        encoder = EncoderSettings(encoder)
    settings = EncodingSettings(encoder, device=device, cache=cache)
    return encoded(find_images("datasets", lambda root: images, "", settings, {}))


def _same_classes(datasets: Mapping[str, Any]) -> Sequence[str] | None:
    """The attribute `classes` of the data sets that have it.

    Raises
    ------
    DataError
        Two of them differ, so one class has several numbers.
    """
    lists = {
        name: list(held.classes)
        for name, held in datasets.items()
        if getattr(held, "classes", None)
    }
    for name, names in lists.items():
        first = next(iter(lists))
        if names != lists[first]:
            raise DataError(
                f"data set {name!r}: its classes are {shown(names)}, but those of "
                f"{first!r} are {shown(lists[first])}; give all the same list"
            )
    return next(iter(lists.values()), None)


def _images(name: str, held: Any) -> Images:
    load, rows = _Loader(name, held), range(len(held))
    # Nothing but its contents says whether an image is the one in the cache.
    read = [load.digest_and_label(row) for row in rows]
    targets = getattr(held, "targets", None)
    if targets is None or len(targets) != len(held):
        targets = [label for _, label in read]
    labels = np.array([int(label) for label in targets], dtype=np.int64)
    digests = tuple(digest for digest, _ in read)
    return Images(labels, tuple(map(str, rows)), digests, load)


@dataclass(frozen=True, eq=False)
class _Loader:
    name: str
    held: Any

    def __call__(self, row: int) -> Image.Image:
        return self._item(row)[0]

    def digest_and_label(self, row: int) -> tuple[str, Any]:
        """The SHA-256 of an image's size and pixels, and the row's label."""
        image, label = self._item(row)
        hashed = hashlib.sha256(repr(image.size).encode() + image.tobytes())
        return hashed.hexdigest(), label

    def _item(self, row: int) -> tuple[Image.Image, Any]:
        """The image, in RGB, and the label of a row."""
        image, label = self._pair(self.held[row], row)
        if not isinstance(image, Image.Image):
            kind = type(image).__name__
            raise DataError(
                f"data set {self.name!r}: row {row} has a {kind} and not a PIL image; "
                "leave out the data set's transform"
            )
        return image.convert("RGB"), label

    def _pair(self, item: Any, row: int) -> tuple[Any, Any]:
        if isinstance(item, Mapping) and {"image", "label"} <= set(item):
            return item["image"], item["label"]
        if isinstance(item, (tuple, list)) and len(item) == 2:
            return item[0], item[1]
        raise DataError(
            f"data set {self.name!r}: row {row} must be a pair of an image and a label"
        )
