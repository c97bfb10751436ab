"""One hash of all rows of a data set."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from .embeddings import Embeddings
from .partition import FederatedData

_BYTES = 32
_MODULUS = 1 << (8 * _BYTES)


def fingerprint(data: FederatedData) -> tuple[int, str]:
    """The number of all rows, and a hash of them.

    The hash covers the rows with their labels, weights and splits. It is made from the
    sum of the rows' own hashes (BLAKE2b). So the order of the rows does not matter, nor
    which client holds them.

    Returns
    -------
    rows : int
        The number of rows of all splits.
    sha256 : str
        The hash, in 64 hexadecimal digits.
    """
    parts = list(data.all_rows())
    total = sum(_row_hashes(split, rows) for split, rows in parts) % _MODULUS
    digest = hashlib.sha256(total.to_bytes(_BYTES, "little")).hexdigest()
    return sum(len(rows) for _, rows in parts), digest


def _row_hashes(split: str, rows: Embeddings) -> int:
    features = np.ascontiguousarray(rows.features.cpu().numpy())
    labels = [str(label) for label in rows.labels.tolist()]
    if rows.weights is not None:
        labels = [f"{c} weight {w}" for c, w in zip(labels, rows.weights.tolist())]
    return sum(_hashes(split, features, labels))


def _hashes(split: str, features: np.ndarray, labels: list[str]) -> Iterable[int]:
    for row, label in zip(features, labels):
        hashed = hashlib.blake2b(row, digest_size=_BYTES)
        hashed.update(f"{split} {label} {features.dtype}".encode())
        yield int.from_bytes(hashed.digest(), "little")
