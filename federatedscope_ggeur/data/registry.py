"""Which reader serves which ``data.type``: of embeddings, or of images to embed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

from federatedscope_ggeur.data.embeddings import DataSet
from federatedscope_ggeur.data.encoded import Encoded
from federatedscope_ggeur.data.encoding import EncodingSettings, encode_images
from federatedscope_ggeur.data.images import image_reader, image_reader_names
from federatedscope_ggeur.data.images.base import ImageReader
from federatedscope_ggeur.data.split import check_splits
from federatedscope_ggeur.errors import ConfigError

SUFFIX = "@ggeur"
Reader = Callable[[str, Sequence[float], int], DataSet]
_READERS: dict[str, Reader] = {}


def register_reader(name: str) -> Callable[[Reader], Reader]:
    """Decorator: the function reads ``data.type: <name>@ggeur``.

    The function is called as ``reader(root, splits, seed)`` and returns a `DataSet`.
    """

    def register(reader: Reader) -> Reader:
        if name in _READERS:
            raise ValueError(f"a reader named '{name}' is already registered")
        _READERS[name] = reader
        return reader

    return register


def check_data_type(data_type: str) -> None:
    """Raise `ConfigError` unless a reader serves `data_type`."""
    _find(data_type)


def is_image_type(data_type: str) -> bool:
    """Whether `data_type` is an image data set, which an encoder embeds.

    Raises
    ------
    ConfigError
        Unknown type.
    """
    return _find(data_type)[1] is not None


def _find(data_type: str) -> tuple[Reader | None, ImageReader | None]:
    """The reader of embeddings or the one of images; the other is None."""
    name = data_type[: -len(SUFFIX)] if data_type.endswith(SUFFIX) else ""
    found = _READERS.get(name), image_reader(name)
    if found == (None, None):
        known = ", ".join(
            name + SUFFIX for name in sorted({*_READERS, *image_reader_names()})
        )
        raise ConfigError(f"data.type '{data_type}' is unknown; known are: {known}.")
    return found


def load_data(
    data_type: str,
    root: str,
    splits: Sequence[float],
    seed: int,
    encoder: EncodingSettings | None = None,
) -> DataSet:
    """Read the data set that ``data.type`` names; images are embedded first.

    Parameters
    ----------
    data_type : str
        ``<name>@ggeur``, e.g. "embeddings@ggeur", "pacs@ggeur".
    root : str
        ``data.root``; readers of bundled data ignore it.
    splits : [train, val, test]
        Fractions, used where the data come without a split; val must be 0.0.
    seed : int
        Keys the split.
    encoder : EncodingSettings, optional
        How images are embedded and where the features are kept.

    Raises
    ------
    ConfigError
        Unknown type, impossible splits, an encoder that cannot be had.
    DataError
        The data cannot be used as they are.
    """
    reader, _ = _find(data_type)
    check_splits(splits)
    if reader is not None:
        return reader(root, splits, seed)
    return embed_data(data_type, root, encoder).data_set(splits, seed)


def embed_data(
    data_type: str, root: str, encoder: EncodingSettings | None = None
) -> Encoded:
    """Embed an image data set, or find it in the cache.

    Parameters
    ----------
    data_type, root, encoder
        As for `load_data`.

    Raises
    ------
    ConfigError, DataError
        As `load_data`; `data_type` is no image data set.
    """
    _, reader = _find(data_type)
    if reader is None:
        raise ConfigError(
            f"data.type: '{data_type}' holds embeddings already; there is nothing to "
            "embed"
        )
    return encode_images(data_type, reader, root, encoder or EncodingSettings())
