"""The readers of each ``data.type``. They read embeddings, or images to embed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from federatedscope_ggeur.errors import ConfigError, did_you_mean
from federatedscope_ggeur.settings import Key, Registry, check_returned
from federatedscope_ggeur.settings.registry import filled_in, registered

from .embeddings import DataSet
from .encoding import Encoded, Encoding, EncodingSettings, Pending, encoded, find_images
from .images import IMAGE_READERS
from .images.layout import ImageReader
from .split import check_splits, split_by_row
from .transforms import NO_TRANSFORM, transform_data

SUFFIX = "@ggeur"
Reader = Callable[..., DataSet]
READERS: Registry[Reader] = Registry("reader", "data.type")
_NONE: Mapping[str, object] = MappingProxyType({})


def register_reader(
    name: str, settings: Sequence[Key] = (), bundled: bool = False
) -> Callable[[Reader], Reader]:
    """Decorator: register a function that reads ``data.type: <name>@ggeur``.

    The function is called as ``reader(root, splits, seed, **own)`` with its own
    `settings`, ``ggeur.<name>.*``, and returns a `DataSet`. `bundled` says that the
    rows come with the program; `root` is then ignored.
    """
    given = ("root", "splits", "seed")
    return registered(READERS, name, settings, given, bundled=bundled)


def is_image_type(data_type: str) -> bool:
    """Whether `data_type` is an image data set, which an encoder must embed.

    Raises
    ------
    ConfigError
        The type is unknown.
    """
    return find_reader(data_type) in IMAGE_READERS.values()


def find_reader(data_type: str) -> Reader | ImageReader:
    """The reader for `data_type`, which reads embeddings or images.

    Raises
    ------
    ConfigError
        The type is unknown.
    """
    name = data_type[: -len(SUFFIX)] if data_type.endswith(SUFFIX) else ""
    reader = READERS.get(name) or IMAGE_READERS.get(name)
    if reader is None:
        known = [name + SUFFIX for name in sorted({*READERS, *IMAGE_READERS})]
        near = did_you_mean(data_type.partition("@")[0] + SUFFIX, known, 0.8)
        raise ConfigError(
            f"data.type '{data_type}' is unknown; known: {', '.join(known)}"
            f"{near or '.'}"
        )
    return reader


def load_data(
    data_type: str,
    root: str,
    splits: Sequence[float],
    seed: int,
    encoder: EncodingSettings | None = None,
    options: Mapping[str, object] = _NONE,
    transform: str = NO_TRANSFORM,
    by_row: bool = False,
) -> DataSet:
    """Read the data set that ``data.type`` names. Images are embedded first.

    Parameters
    ----------
    data_type : str
        ``<name>@ggeur``, e.g. "embeddings@ggeur", "pacs@ggeur".
    root : str
        ``data.root``; readers of bundled data ignore it.
    splits : [train, val, test]
        Fractions, used if the data come without a split. Validation rows stay among the
        training rows until clients take them out (`partition`).
    seed : int
        Decides the split.
    encoder : EncodingSettings, optional
        The settings of the encoder and of the cache, for images.
    options : mapping
        The reader's own settings by name. Missing ones have their defaults.
    transform : {"none", "l2", "sqrt_l2", "lift"}
        The transform of embeddings. Embeddings of images stay as the encoder makes
        them.
    by_row : bool
        Whether each embedding's part depends on itself alone; see `split_by_row`.

    Raises
    ------
    ConfigError
        The type is unknown, the splits are impossible, or the encoder cannot be built.
    DataError
        The data cannot be used.
    """
    reader = find_reader(data_type)
    check_splits(splits)
    if is_image_type(data_type):
        data = embed_data(data_type, root, encoder, options).data_set(splits, seed)
        return transform_data(data, NO_TRANSFORM)
    # `split_by_row` gets all rows.
    shares = [part / sum(splits) for part in splits] if by_row else splits
    data = reader(root, shares, seed, **filled_in(reader, options))
    check_returned(f"the reader of data.type '{data_type}'", reader, data, DataSet)
    if by_row:
        domains = [
            split_by_row(domain, splits, seed) if domain.is_drawn else domain
            for domain in data.domains
        ]
        data = replace(data, domains=tuple(domains))
    return transform_data(data, transform)


def embed_data(
    data_type: str,
    root: str,
    encoder: EncodingSettings | None = None,
    options: Mapping[str, object] = _NONE,
) -> Encoded:
    """Embed an image data set, or take its features from the cache.

    Parameters
    ----------
    data_type, root, encoder, options
        As for `load_data`.

    Raises
    ------
    ConfigError, DataError
        The errors of `load_data`. Or `data_type` is no image data set.
    """
    if not is_image_type(data_type):
        raise ConfigError(
            f"data.type: '{data_type}' holds embeddings already, so there is nothing "
            "to embed; name an image data set"
        )
    return encoded(_find_images(data_type, root, encoder, options))


def find_pending(
    data_type: str,
    root: str,
    encoder: EncodingSettings | None = None,
    options: Mapping[str, object] = _NONE,
) -> Pending | None:
    """The number of images that `load_data` would embed first; None if there are none.

    Parameters and errors are those of `load_data`. Nothing is written.
    """
    if not is_image_type(data_type):
        return None
    result = _find_images(data_type, root, encoder, options)
    return None if isinstance(result, Encoded) else result.pending()


def _find_images(data_type, root, encoder, options) -> Encoded | Encoding:
    reader = find_reader(data_type)
    own = filled_in(reader, options)
    return find_images(data_type, reader, root, encoder or EncodingSettings(), own)
