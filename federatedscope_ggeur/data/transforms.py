"""The transforms of `data.transform`, which change embeddings before any other use.

What a head expects of rows: one record, and the one place that compares them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import DataError, listed, shown
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.rng import torch_generator

from .embeddings import DataSet, Embeddings
from .labels import NAMES, POSITIONS, matched
from .partition import FederatedData
from .rows import NOT_KNOWN, Given, Rows, is_unit_length, shared

NO_TRANSFORM = "none"
#: Adds random features to each row.
LIFT = "lift"
TRANSFORMS = (NO_TRANSFORM, "l2", "sqrt_l2", LIFT)
#: How many features it adds.
LIFTED = 500
#: l2, a projection, and l2 again; see `projected`.
PROJECTED = "l2_projected"

_ALONE = [[name] for name in TRANSFORMS]
_CHUNK_ROWS = 4096
Divided = TypeVar("Divided", DataSet, FederatedData)


def named_transform(listed: Sequence) -> str:
    """The transform of embeddings that a list such as ``data.transform`` names; else
    "none".

    FederatedScope writes a transform of images as a list of its name and its arguments.
    So an entry may also be a list with one name.
    """
    return next((n for n in names_listed(listed) if n in TRANSFORMS), NO_TRANSFORM)


def names_listed(listed: Sequence) -> list:
    """Turn each entry with one name of `TRANSFORMS`, such as ``["l2"]``, into that
    name.

    Other entries stay as they are.
    """
    return [
        one[0] if isinstance(one, (list, tuple)) and [*one] in _ALONE else one
        for one in listed
    ]


def transform_rows(rows: Tensor, transform: str) -> Tensor:
    """Transform rows of shape (n, D) by one of `TRANSFORMS`. Their dtype stays.

    l2 scales each row to Euclidean length 1. A row of zeros stays. sqrt_l2 first takes
    the signed square root ``sign(x) |x|^(1/2)`` of each entry. lift appends `LIFTED`
    random features ``relu(x G)``, where G depends on D alone; rows then have the shape
    (n, D + LIFTED). Their statistics give them away (docs/privacy.md). A transform of
    `projected` is l2, a projection to fewer dimensions, and l2 again; rows then have
    the shape (n, kept).
    """
    name, *numbers = transform.split(":")
    if name == PROJECTED:
        return _projected(rows, *map(int, numbers))
    if transform == LIFT:
        return _lifted(rows)
    if transform == NO_TRANSFORM or not len(rows):
        return rows
    parts = (_transformed(part, transform) for part in rows.split(_CHUNK_ROWS))
    return torch.cat(list(parts))


def projected(kept: int, seed: int) -> str:
    """The name of the projection to `kept` dimensions that `seed` decides.

    If `kept` is 0, or not below the rows' dimension, it is l2 alone.
    """
    return f"{PROJECTED}:{kept}:{seed}"


def rows_before(encoder: str) -> int | None:
    """The dimension of rows before a projection or a lift; None if there was neither.

    `encoder` is the recorded name of the encoder with its transform.
    """
    match = re.search(rf"({PROJECTED}:\d+:\d+|{LIFT}) of (\d+)$", encoder)
    return int(match.group(2)) if match else None


def random_projection(dim: int, kept: int, seed: int) -> Tensor:
    """Draw orthonormal rows [kept, dim], float64.

    They depend on `seed` alone, not on data.
    """
    generator = torch_generator(seed, "public projection", dim, kept)
    drawn = torch.randn(dim, kept, dtype=torch.float64, generator=generator)
    basis, signs = torch.linalg.qr(drawn)
    return (basis * signs.diagonal().sign()).T.contiguous()


def _projected(rows: Tensor, kept: int, seed: int) -> Tensor:
    rows, dim = transform_rows(rows, "l2"), rows.shape[1]
    if not 0 < kept < dim:
        return rows
    matrix = random_projection(dim, kept, seed).T
    parts = [part.double() @ matrix for part in rows.split(_CHUNK_ROWS)]
    return transform_rows(torch.cat(parts), "l2").to(rows.dtype)


def lift_directions(dim: int) -> Tensor:
    """Draw the directions [dim, LIFTED] of `LIFT`, float64.

    They depend on `dim` alone.
    """
    generator = torch_generator(0, "lift", dim)
    drawn = torch.randn(dim, LIFTED, dtype=torch.float64, generator=generator)
    return drawn / dim**0.5


def _lifted(rows: Tensor) -> Tensor:
    directions = lift_directions(rows.shape[1])
    parts = [part.double() @ directions for part in rows.split(_CHUNK_ROWS)]
    return torch.cat([rows, torch.cat(parts).relu().to(rows.dtype)], dim=1)


def _transformed(rows: Tensor, transform: str) -> Tensor:
    exact = rows.to(torch.float64)
    if transform == "sqrt_l2":
        exact = exact.sign() * exact.abs().sqrt()
    # Divide by the largest entry first, so that no square underflows.
    exact = exact / _or_one(exact.abs().amax(dim=1, keepdim=True))
    return (exact / _or_one(exact.norm(dim=1, keepdim=True))).to(rows.dtype)


def _or_one(sizes: Tensor) -> Tensor:
    return torch.where(sizes > 0, sizes, torch.ones_like(sizes))


def transform_data(data: Divided, transform: str) -> Divided:
    """Transform the rows of a data set, unless that was done before.

    Its `encoder` names the transform then. `given` says what the rows were.

    Raises
    ------
    DataError
        The rows are pixels, or were transformed in another way.
    """
    done = data.given.transform
    if done not in (NO_TRANSFORM, transform):
        raise DataError(
            f"data.transform: is {transform}, but the rows are transformed already, "
            f"by {done}"
        )
    if data.image_shape is not None and transform != NO_TRANSFORM:
        raise DataError(
            f"data.transform: {transform} is for embeddings, but these rows are the "
            "pixels of images; leave it out"
        )
    if done != NO_TRANSFORM or data.image_shape is not None:
        return data
    unit = is_unit_length(rows.features for _, rows in data.all_rows())
    given = replace(data.given, dim=data.dim, transform=transform, unit_length=unit)
    if transform == NO_TRANSFORM:
        return replace(data, given=given)

    def of(rows: Embeddings) -> Embeddings:
        return replace(rows, features=transform_rows(rows.features, transform))

    encoder = f"{data.encoder}, {transform}"
    if transform == LIFT or transform.startswith(PROJECTED):
        encoder += f" of {data.dim}"
    return data.mapped(of, encoder=encoder, given=given)


logger = get_logger(__name__)

_OPTION = f"--labels {NAMES} or --labels {POSITIONS}"


@dataclass(frozen=True)
class Expected:
    """What a head expects of rows.

    Attributes
    ----------
    class_names : tuple of str
    encoder : str
        The name of the encoder, with the transform.
    given : Given
        How the rows were given that the head was made from. The same transform is
        applied to all rows, and labels are read in the same way.
    """

    class_names: tuple[str, ...]
    encoder: str = ""
    given: Given = NOT_KNOWN

    def take(self, rows: Any, pixels: bool = False, where: str = "features") -> Tensor:
        """Rows as the head takes them: checked, in order, transformed; [n, D'].

        Parameters
        ----------
        rows : Rows, or anything that `Rows.of` reads
        pixels : bool
            Whether the head is a network, which takes rows of uint8.

        Raises
        ------
        DataError
            The rows have a fault, other titles or another dimension.
        """
        given = self.given
        if not isinstance(rows, Rows):
            rows = Rows.of(rows, where=where)
        features = shared(rows.in_order_of(given.titles))
        if not pixels:
            features = features.float()
        if given.dim not in (None, features.shape[1]):
            raise DataError(
                f"{rows.where}: rows of shape {list(features.shape)} do not fit: the "
                f"head takes rows of {given.dim} columns, not {features.shape[1]}"
            )
        if given.unit_length and not is_unit_length([features]):
            logger.warning(
                "%s: the head was made from rows of length 1, but these have other "
                "lengths; scale them as those were",
                rows.where,
            )
        return transform_rows(features, given.transform)

    def numbers(self, rows: Rows, how: str = "") -> np.ndarray:
        """The class number of each label: int64 array of shape [n]; -1 for no class.

        Parameters
        ----------
        rows : Rows with labels
        how : {"names", "positions", ""}
            How to read the labels; by default as the head remembers.

        Raises
        ------
        DataError
            The head does not know how its labels were given, and both ways are possible
            and differ.
        """
        labels, how = rows.named(), how or self.given.labels
        if rows.class_names is not None:
            how = NAMES
        if how:
            return matched(labels, self.class_names, how)
        by_name, by_place = (
            matched(labels, self.class_names, each) for each in (NAMES, POSITIONS)
        )
        fits = [bool((each >= 0).all()) for each in (by_name, by_place)]
        if fits[0] != fits[1]:
            return by_name if fits[0] else by_place
        if not np.array_equal(by_name, by_place):
            row = int((by_name != by_place).argmax())
            names = (*map(shown, self.class_names), "none")
            raise DataError(
                f"{rows.where}: the label {shown(labels[row].item())} in row {row} may "
                f"be a name (class {names[by_name[row]]}) or a position in the list of "
                f"classes (class {names[by_place[row]]}), and nobody recorded which; "
                f"say {_OPTION}"
            )
        return by_name

    def labelled(
        self, rows: Any, labels: Any = None, how: str = ""
    ) -> tuple[Tensor, Tensor]:
        """Rows as the head takes them, and the class number of each.

        Raises
        ------
        DataError
            As `take` and `numbers`; or there are no labels, or a label is of no class.
        """
        if not isinstance(rows, Rows):
            rows = Rows.of(rows, labels, "arrays")
        if rows.labels is None:
            raise DataError(
                f"{rows.where}: has no labels; add them as the array or column 'labels'"
            )
        numbers = self.numbers(rows, how)
        if said := self.unknown(rows, numbers):
            raise DataError(f"{said}. Correct the labels, or name the classes")
        return self.take(rows), torch.from_numpy(numbers)

    def unknown(self, rows: Rows, numbers: np.ndarray) -> str:
        """A line on the labels whose `numbers` are -1; "" if there are none."""
        bad = np.flatnonzero(numbers < 0)
        if not len(bad):
            return ""
        labels = rows.named()
        counts = Counter(labels[bad].tolist())
        names = [f"{shown(label)} ({n})" for label, n in counts.most_common()]
        fits = [
            how
            for how in (NAMES, POSITIONS)
            if (matched(labels, self.class_names, how) >= 0).all()
        ]
        hint = f". As {fits[0]} all are known; see {_OPTION}" if fits else ""
        return (
            f"{rows.where}: {len(bad)} labels, the first in row {bad[0]}, are none of "
            f"the {len(self.class_names)} classes: {listed(names, 5)}{hint}"
        )
