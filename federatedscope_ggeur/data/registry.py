"""Which reader serves which ``data.type``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

from federatedscope_ggeur.data.embeddings import DataSet
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
    _find_reader(data_type)


def _find_reader(data_type: str) -> Reader:
    name = data_type[: -len(SUFFIX)] if data_type.endswith(SUFFIX) else ""
    if name not in _READERS:
        known = ", ".join(name + SUFFIX for name in sorted(_READERS))
        raise ConfigError(f"data.type '{data_type}' is unknown; known are: {known}.")
    return _READERS[name]


def load_data(data_type: str, root: str, splits: Sequence[float], seed: int) -> DataSet:
    """Read the data set that ``data.type`` names.

    Parameters
    ----------
    data_type : str
        ``<name>@ggeur``, e.g. "embeddings@ggeur".
    root : str
        ``data.root``; readers of bundled data ignore it.
    splits : [train, val, test]
        Fractions, used where the data come without a split; val must be 0.0.
    seed : int
        Keys the split.

    Raises
    ------
    ConfigError
        Unknown type, impossible splits.
    DataError
        The data cannot be used as they are.
    """
    reader = _find_reader(data_type)
    check_splits(splits)
    return reader(root, splits, seed)
