"""`Embeddings`, `Domain` and `DataSet`: containers of rows that check their rows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from federatedscope_ggeur.errors import DataError

from .labels import checked_names, out_of_range, refuse_negative, whole_numbers
from .rows import NOT_KNOWN, Given, Rows, check_shapes, check_values, shared

#: The fields of `Embeddings` with an entry for each row.
_COLUMNS = ("features", "labels", "users", "weights")


def check_alike(named: Iterable[tuple[str, Embeddings]], num_classes: int) -> None:
    """Refuse rows that belong to no one data set. Each has a name for messages.

    Raises
    ------
    DataError
        Rows differ in D or image shape from the first ones, or a label is
        `num_classes` or more.
    """
    first: tuple[str, Embeddings] | None = None
    for where, rows in named:
        source, other = first = first or (where, rows)
        for what, have, wanted in (
            ("D", rows.dim, other.dim),
            ("'image_shape'", rows.image_shape, other.image_shape),
        ):
            if have != wanted:
                raise DataError(
                    f"{where}: rows have {what} = {have}, but those of {source} have "
                    f"{what} = {wanted}. Embed all by the same encoder."
                )
        bad = rows.labels >= num_classes
        if bad.any():
            row = int(bad.nonzero()[0, 0])
            raise out_of_range(int(rows.labels[row]), row, num_classes, where)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Labelled rows of one domain, either embeddings or pixels.

    Parameters
    ----------
    features : torch.Tensor of shape [n, D]
        Finite float32 embeddings, one in each row; n may be 0. With an `image_shape`,
        each row holds the uint8 pixels of an image, channel by channel and row by row.
        Code that computes with pixels casts them, a batch at a time.
    labels : torch.Tensor of shape [n], int64
        Class numbers, 0 or more.
    domain : str
        The domain that the rows come from.
    image_shape : (channels, height, width) or None
        The shape of an image, if the rows are pixels. Its product is D. None for
        embeddings.
    users : torch.Tensor of shape [n], int64, or None
        The number of the user who made each row, from 0 within the domain. None if
        unknown.
    weights : torch.Tensor of shape [n], float64, or None
        What each row counts for in statistics: positive numbers. None stands for 1.

    Raises
    ------
    DataError
        A shape, dtype or value is wrong. The error names the domain, the array and the
        first bad row.
    """

    features: torch.Tensor
    labels: torch.Tensor
    domain: str
    image_shape: tuple[int, int, int] | None = None
    users: torch.Tensor | None = None
    weights: torch.Tensor | None = None

    def __post_init__(self):
        self._check(f"domain '{self.domain}'")

    def _check(self, where: str) -> None:
        check_shapes(self.features, self.labels, where)
        dtype, shape = self.features.dtype, self.image_shape
        if shape is None and dtype == torch.uint8:
            raise DataError(
                f"{where}: 'features' is torch.uint8, which is for pixels of images. "
                "Give their 'image_shape', (channels, height, width), or use float32."
            )
        wanted = torch.float32 if shape is None else torch.uint8
        if dtype != wanted:
            kind = "" if shape is None else " if there is an 'image_shape'"
            raise DataError(
                f"{where}: 'features' must be {wanted}{kind}, but is {dtype}."
            )
        if shape is not None and (
            len(shape) != 3 or min(shape) < 1 or math.prod(shape) != self.dim
        ):
            raise DataError(
                f"{where}: 'image_shape' {shape} does not fit rows of {self.dim} "
                "pixels. It must be (channels, height, width) with the product "
                f"{self.dim}."
            )
        # Bytes need no check, and they may fill most of the memory.
        if shape is None:
            check_values(self.features.numpy(), where)
        for name in ("labels", "users"):
            column = getattr(self, name)
            if column is None:
                continue
            if column.dtype != torch.int64:
                raise DataError(
                    f"{where}: '{name}' must be torch.int64, but is {column.dtype}."
                )
            if column.shape != self.labels.shape:
                raise DataError(
                    f"{where}: 'users' must hold one user's number for each row, shape "
                    f"[{len(self)}], but has the shape {list(column.shape)}."
                )
            refuse_negative(name, column, where)

    @classmethod
    def from_numpy(
        cls,
        features: np.ndarray,
        labels: np.ndarray,
        domain: str,
        where: str,
        image_shape: np.ndarray | None = None,
        users: np.ndarray | None = None,
    ) -> Embeddings:
        """Make embeddings from arrays: check them, and cast them to float32 and int64.

        Parameters
        ----------
        features : array of shape [n, D], of floats or integers
            With an `image_shape` they must be uint8, and are not cast.
        labels : array of shape [n], of whole numbers in any dtype
        domain : str
        where : str
            The source of the arrays, e.g. a file's path. Errors start with it.
        image_shape : array of shape [3], of integers, optional
        users : array of shape [n], of any integer dtype, optional

        Raises
        ------
        DataError
            A shape, dtype or value is wrong, or the cast would change a value.
        """
        rows = Rows.of(features, labels, where, None, image_shape, users)
        assert rows.labels is not None, "they were given"
        return cls.of_rows(rows, whole_numbers("labels", rows.labels, where), domain)

    @classmethod
    def of_rows(
        cls, rows: Rows, labels: np.ndarray, domain: str, copy: bool = True
    ) -> Embeddings:
        """Checked rows with their class numbers, int64 array of shape [n].

        `copy` says whether the owner of the rows may change them later.
        """
        features, users = shared(rows.features), rows.users
        if rows.image_shape is None and features.dtype == torch.uint8:
            features = features.to(torch.float32)
        elif copy:
            features = features.clone()
        made = object.__new__(cls)
        vars(made).update(
            features=features,
            labels=torch.from_numpy(labels),
            domain=domain,
            image_shape=rows.image_shape,
            users=None if users is None else torch.from_numpy(users),
            weights=None,
        )
        made._check(rows.where)  # it names the source of the rows
        return made

    @classmethod
    def concatenate(cls, parts: Sequence[Embeddings], domain: str = "") -> Embeddings:
        """Join the rows of `parts`, in order. There must be at least one part.

        The result has the domain `domain`, by default that of the first part.
        """
        domain = domain or parts[0].domain
        if len(parts) == 1:
            return parts[0].of_domain(domain)
        features = torch.cat([part.features for part in parts])
        labels = torch.cat([part.labels for part in parts])

        def of_all(columns: list[torch.Tensor | None]) -> torch.Tensor | None:
            known = [column for column in columns if column is not None]
            return torch.cat(known) if len(known) == len(parts) else None

        users = of_all([part.users for part in parts])
        weights = of_all([part.weights for part in parts])
        shape = parts[0].image_shape
        return cls(features, labels, domain, shape, users, weights)

    def __len__(self) -> int:
        return len(self.labels)

    def hashes(self, purpose: str, size: int) -> Iterator[int]:
        """Yield a number of `size` bytes for each row: a hash of its features, label
        and weight, and of `purpose`."""
        features = np.ascontiguousarray(self.features.cpu().numpy())
        labels = [str(label) for label in self.labels.tolist()]
        if self.weights is not None:
            labels = [f"{c} weight {w}" for c, w in zip(labels, self.weights.tolist())]
        dtype = str(features.dtype)
        for row, label in zip(features, labels):
            hashed = hashlib.blake2b(row, digest_size=size)
            hashed.update(f"{purpose} {label} {dtype}".encode())
            yield int.from_bytes(hashed.digest(), "little")

    @property
    def dim(self) -> int:
        """D, the length of one embedding."""
        return self.features.shape[1]

    def select(self, index) -> Embeddings:
        """The rows at `index`: row numbers in any order, or a mask of length n."""
        index = torch.as_tensor(index)
        if index.numel() == 0:
            index = index.long()  # an empty list arrives as floats
        return self._at(index)

    def between(self, first: int, last: int) -> Embeddings:
        """The rows from `first` up to, but without, `last`: views, no copies."""
        return self._at(slice(first, last))

    def copied(self) -> Embeddings:
        """The same rows, with features in their own memory."""
        return self._with(features=self.features.clone())

    def of_domain(self, domain: str) -> Embeddings:
        """The same rows under another domain's name."""
        return self._with(domain=domain)

    def weighted(self, weights: torch.Tensor) -> Embeddings:
        """The same rows with `weights` [n], float64, which the caller has checked."""
        return self._with(weights=weights)

    def _at(self, index: torch.Tensor | slice) -> Embeddings:
        columns = {name: getattr(self, name) for name in _COLUMNS}
        kept = {k: None if v is None else v[index] for k, v in columns.items()}
        return self._with(**kept)

    def _with(self, **changed) -> Embeddings:
        """A copy with other values of some fields, which the caller has checked."""
        part = object.__new__(type(self))
        vars(part).update(vars(self), **changed)
        return part


@dataclass(frozen=True)
class Domain:
    """One domain: its name, its training rows and its test rows.

    `is_drawn` says that ``data.splits`` divided the rows, and not who brought them.
    """

    name: str
    train: Embeddings
    test: Embeddings
    is_drawn: bool = False


@dataclass(frozen=True)
class DataSet:
    """A data set: one or more domains with the same D, image shape and classes.

    Parameters
    ----------
    domains : tuple of Domain
        At least one domain. Their names differ.
    class_names : tuple of str, of length C
        The name of class c stands at position c.
    encoder : str
        A description of the encoder in one line.
    identity : mapping, optional
        All properties of the encoder that the embeddings depend on. None if unknown.
    given : Given, optional
        How the rows were given, and what was done to them since.

    Raises
    ------
    DataError
        Two domains differ in D or image shape, a name is repeated, or a label is C or
        more. The error names the domain, the split and the row.
    """

    domains: tuple[Domain, ...]
    class_names: tuple[str, ...]
    encoder: str
    identity: Mapping[str, object] | None = None
    given: Given = NOT_KNOWN

    def __post_init__(self):
        checked_names(self.class_names, "the classes of a data set")
        if not self.domains:
            raise DataError("a data set needs at least one domain; this one has none.")
        names = [domain.name for domain in self.domains]
        if len(set(names)) < len(names):
            raise DataError(
                f"the domains of a data set must have different names, but are {names}."
            )
        parts = (
            (f"domain '{domain.name}', split '{split}'", getattr(domain, split))
            for domain in self.domains
            for split in ("train", "test")
        )
        check_alike(parts, self.num_classes)

    def all_rows(self) -> Iterator[tuple[str, Embeddings]]:
        """Yield all rows with their split."""
        for domain in self.domains:
            yield "train", domain.train
            yield "test", domain.test

    def mapped(self, change: Callable[[Embeddings], Embeddings], **more) -> DataSet:
        """The data set with `change` of all its rows, and other values of fields."""
        domains = (
            Domain(d.name, change(d.train), change(d.test)) for d in self.domains
        )
        return replace(self, domains=tuple(domains), **more)

    def among(self, class_names: Sequence[str]) -> DataSet:
        """The data set with these classes, which hold all of its own, as its list."""
        place = torch.tensor([class_names.index(name) for name in self.class_names])
        return self.mapped(
            lambda rows: rows._with(labels=place[rows.labels]),
            class_names=tuple(class_names),
        )

    @property
    def dim(self) -> int:
        """D, the length of one embedding."""
        return self.domains[0].train.dim

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(channels, height, width) of images, if rows are pixels; else None."""
        return self.domains[0].train.image_shape

    @property
    def num_classes(self) -> int:
        """C, the number of classes."""
        return len(self.class_names)
