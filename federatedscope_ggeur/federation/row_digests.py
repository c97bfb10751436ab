"""Digests by which a client recognises rows that it has released before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

#: Bytes of the digest of a row, and of a client's secret.
ROW_BYTES, SALT_BYTES = 16, 32


@dataclass(frozen=True)
class RowDigests:
    """Digests of a client's rows, made with its secret salt.

    Attributes
    ----------
    rows : frozenset of bytes
        One digest for each row. They show whether two sets of rows overlap.
    whole : bytes
        One digest of all rows with their class names. It shows whether two sets are
        equal. The order of rows and classes does not matter. A row that occurs twice
        counts twice.
    """

    rows: frozenset[bytes]
    whole: bytes


def row_digests(
    features: Tensor, labels: Tensor, class_names: Sequence[str], salt: bytes
) -> RowDigests:
    """Compute the digests of rows [n, D], float32, with labels [n]."""
    data = features.detach().cpu().numpy().astype("<f4") + 0.0  # so that -0.0 is 0.0
    plain = hashlib.blake2b(digest_size=ROW_BYTES, key=salt, person=b"row")
    named = hashlib.blake2b(digest_size=ROW_BYTES, key=salt, person=b"row of a class")
    names = [name.encode("utf-8", "surrogatepass") for name in class_names]
    rows, with_class = [], []
    for row, label in zip(data, labels.tolist()):
        alone, labelled = plain.copy(), named.copy()
        alone.update(row)
        rows.append(alone.digest())
        labelled.update(rows[-1] + names[label])
        with_class.append(labelled.digest())
    whole = hashlib.blake2b(digest_size=SALT_BYTES, key=salt, person=b"rows")
    whole.update(b"".join(sorted(with_class)))
    return RowDigests(frozenset(rows), whole.digest())
