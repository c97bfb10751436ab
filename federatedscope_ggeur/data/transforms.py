"""The transforms of `data.transform`, which change embeddings before any other use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.rng import torch_generator

from .embeddings import DataSet, Embeddings
from .partition import FederatedData
from .rows import is_unit_length

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
    found = (one for one in names_listed(listed) if one in TRANSFORMS)
    return next(found, NO_TRANSFORM)


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
    found = re.search(rf"({PROJECTED}:\d+:\d+|{LIFT}) of (\d+)$", encoder)
    return int(found.group(2)) if found else None


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
