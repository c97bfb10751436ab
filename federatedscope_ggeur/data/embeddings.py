"""`Embeddings`, `Domain` and `DataSet`: checked containers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from federatedscope_ggeur.errors import DataError


def _first_row(bad: torch.Tensor) -> int:
    return int(bad.nonzero()[0, 0])


def check_labels_below(labels: torch.Tensor, num_classes: int, where: str) -> None:
    """Raise a `DataError` naming `where` and the first label >= `num_classes`."""
    bad = labels >= num_classes
    if bad.any():
        row = _first_row(bad)
        raise DataError(
            f"{where}: label {int(labels[row])} in row {row} of 'labels' is out of "
            f"range: with {num_classes} classes, labels run from 0 to "
            f"{num_classes - 1}. Correct the label or name the missing classes."
        )


def _check_shapes(features, labels, where: str) -> None:
    for name, array, ndim, shape in (
        ("features", features, 2, "[n, D]"),
        ("labels", labels, 1, "[n]"),
    ):
        if array.ndim != ndim:
            raise DataError(
                f"{where}: '{name}' must have {ndim} dimension(s), {shape}, but has "
                f"shape {list(array.shape)}."
            )
    if features.shape[1] == 0:
        raise DataError(f"{where}: 'features' has no columns (D = 0).")
    if len(features) != len(labels):
        raise DataError(
            f"{where}: 'features' has {len(features)} rows but 'labels' has "
            f"{len(labels)}; they must have the same length."
        )


def _check_values(features: torch.Tensor, labels: torch.Tensor, where: str) -> None:
    bad = ~torch.isfinite(features).all(dim=1)
    if bad.any():
        raise DataError(
            f"{where}: 'features' holds NaN or inf; the first such row is "
            f"{_first_row(bad)}. Remove or recompute it."
        )
    bad = labels < 0
    if bad.any():
        row = _first_row(bad)
        raise DataError(
            f"{where}: 'labels' holds the negative label {int(labels[row])} in row "
            f"{row}. Labels must be 0 or more."
        )


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Labelled embeddings of one domain; n may be 0.

    Parameters
    ----------
    features : torch.Tensor of shape [n, D], float32
        Finite embeddings, one in each row.
    labels : torch.Tensor of shape [n], int64
        Class numbers, 0 or more.
    domain : str
        The domain that the rows come from.

    Raises
    ------
    DataError
        Wrong shape, dtype or value; names the domain, the array and the first bad row.
    """

    features: torch.Tensor
    labels: torch.Tensor
    domain: str

    def __post_init__(self):
        where = f"domain '{self.domain}'"
        _check_shapes(self.features, self.labels, where)
        for name, dtype in (("features", torch.float32), ("labels", torch.int64)):
            found = getattr(self, name).dtype
            if found != dtype:
                raise DataError(f"{where}: '{name}' must be {dtype}, but is {found}.")
        _check_values(self.features, self.labels, where)

    @classmethod
    def from_numpy(
        cls, features: np.ndarray, labels: np.ndarray, domain: str, where: str
    ) -> Embeddings:
        """Check arrays, cast them to float32 and int64, and name `where` in errors.

        Parameters
        ----------
        features : array of shape [n, D], of floats or integers
        labels : array of shape [n], of any integer dtype
        domain : str
        where : str
            Where the arrays come from, e.g. a file's path; errors start with it.

        Raises
        ------
        DataError
            As for the class, and for dtypes or values that the cast would spoil.
        """
        if features.dtype.kind not in "fiu":
            raise DataError(
                f"{where}: 'features' must hold real numbers, but has dtype "
                f"{features.dtype}."
            )
        if labels.dtype.kind not in "iu":
            raise DataError(
                f"{where}: 'labels' must hold integers, but has dtype {labels.dtype}. "
                "Save them with labels.astype('int64')."
            )
        _check_shapes(features, labels, where)
        with np.errstate(over="ignore"):
            cast = np.ascontiguousarray(features, dtype=np.float32)
        bad = (np.isinf(cast) & np.isfinite(features)).any(axis=1)
        if bad.any():
            raise DataError(
                f"{where}: 'features' ({features.dtype}) holds values too large for "
                f"float32; the first such row is {int(bad.argmax())}. Rescale them."
            )
        if labels.dtype.kind == "u":
            bad = labels.astype(np.uint64) > np.uint64(np.iinfo(np.int64).max)
            if bad.any():
                row = int(bad.argmax())
                raise DataError(
                    f"{where}: 'labels' ({labels.dtype}) holds {labels[row]} in row "
                    f"{row}, too large for int64. Number the classes from 0."
                )
        # A copy: torch must not share memory with an array that its owner may change.
        tensors = torch.tensor(cast), torch.tensor(labels.astype(np.int64))
        _check_values(*tensors, where)
        return cls(*tensors, domain)

    @classmethod
    def concatenate(cls, parts: Sequence[Embeddings], domain: str = "") -> Embeddings:
        """The rows of `parts` (at least one), in order; of the first one's domain, or
        of `domain`."""
        domain = domain or parts[0].domain
        if len(parts) == 1:
            return replace(parts[0], domain=domain)
        features = torch.cat([part.features for part in parts])
        labels = torch.cat([part.labels for part in parts])
        return cls(features, labels, domain)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def dim(self) -> int:
        """D, the length of one embedding."""
        return self.features.shape[1]

    def select(self, index) -> Embeddings:
        """The rows at `index` (row numbers in any order, or a mask of length n)."""
        index = torch.as_tensor(index)
        if index.numel() == 0:
            index = index.long()  # an empty list arrives as floats
        return Embeddings(self.features[index], self.labels[index], self.domain)


@dataclass(frozen=True)
class Domain:
    """One domain's name, training rows and test rows."""

    name: str
    train: Embeddings
    test: Embeddings


@dataclass(frozen=True)
class DataSet:
    """Several domains that share D and the classes.

    Parameters
    ----------
    domains : tuple of Domain
        At least one; names differ.
    class_names : tuple of str, of length C
        The name of class c stands at position c.
    encoder : str
        How the embeddings were made, in one line.

    Raises
    ------
    DataError
        Different D, a repeated name, or a label >= C; names domain, split and row.
    """

    domains: tuple[Domain, ...]
    class_names: tuple[str, ...]
    encoder: str

    def __post_init__(self):
        if not self.domains:
            raise DataError("a data set needs at least one domain.")
        names = [domain.name for domain in self.domains]
        if len(set(names)) < len(names):
            raise DataError(f"domain names must differ, but are {names}.")
        first = f"domain '{names[0]}', split 'train'"
        for domain in self.domains:
            for split in ("train", "test"):
                rows: Embeddings = getattr(domain, split)
                where = f"domain '{domain.name}', split '{split}'"
                if rows.dim != self.dim:
                    raise DataError(
                        f"{where}: embeddings have D = {rows.dim}, but {first} has "
                        f"D = {self.dim}. Embed all domains with the same encoder."
                    )
                check_labels_below(rows.labels, self.num_classes, where)

    @property
    def dim(self) -> int:
        """D, the length of one embedding."""
        return self.domains[0].train.dim

    @property
    def num_classes(self) -> int:
        """C, the number of classes."""
        return len(self.class_names)
