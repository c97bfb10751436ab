"""The message that carries a client's class statistics in round 0."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import (
    EACH_CLASS,
    MessageSchema,
    StatisticsForm,
)
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING, Statistics

F32, F64, I64 = torch.float32, torch.float64, torch.int64

#: The numbers that embeddings and their means may have.
EMBEDDINGS = -LARGEST_EMBEDDING, LARGEST_EMBEDDING


class StatisticsUpload(wire.Payload, kind="statistics"):
    """Round 0, client to server: class statistics, after the client's steps.

    A scatter travels as its thin factor or its upper triangle, whichever is smaller. It
    is float32, or float64 if `form` is exact. Means are float64, since the merge
    multiplies a rounding error by the mean's distance from the origin. If `form` has a
    packing, that says how all but classes and counts travels.

    Attributes
    ----------
    client : int
    domain : str
    statistics : Statistics, or what a packing made of it
        On arrival, the server's sides of the steps have been taken.
    form : StatisticsForm
    """

    client: int
    domain: str
    statistics: Any
    form: StatisticsForm = EACH_CLASS

    def write(self) -> wire.Content:
        statistics, form = self.statistics, self.form
        index = torch.nonzero(statistics.counts).flatten()
        numbers = {"client": self.client, "domain": self.domain}
        tensors = {"classes": index, "counts": statistics.counts[index]}
        if form.packing is not None:
            more, few = form.packing.write(statistics)
            numbers, tensors = {**numbers, **more}, {**tensors, **few}
        else:
            tensors["means"] = statistics.means[index]
            if form.weighted:
                tensors["weights"] = statistics.weights[index]
            if form.content != "means":
                tensors.update(_scatter_tensors(statistics, _dtype(form)))
        return numbers, tensors

    @classmethod
    def read(cls, message: wire.Message, schema: MessageSchema) -> StatisticsUpload:
        num_classes, form = schema.num_classes, schema.statistics
        labels = message.labels("classes", num_classes, distinct=True)
        counts = message.tensor("counts", I64, (len(labels),), (1, wire.LARGEST))
        held = torch.zeros(num_classes, dtype=I64)
        held[labels] = counts
        read = _take_whole if form.packing is None else form.packing.read
        statistics = form.arrive(read(message, held, schema))
        client, domain = message.client(), message.text("domain")
        return cls(client, domain, statistics, form)


def _dtype(form: StatisticsForm) -> torch.dtype:
    return F64 if form.exact else F32


def _scatter_tensors(statistics: Statistics, dtype: torch.dtype) -> dict[str, Tensor]:
    """Pack each scatter as a factor or as a triangle, the smaller one.

    The triangle is that of a class's Sigma, or of the scatter summed over classes. It
    has squares of numbers, so small ones underflow there first: then a factor travels.
    The tensor of ranks says which: -1 stands for a triangle.
    """
    held, by_class = statistics, statistics.content == "class"
    upper = torch.triu_indices(held.dim, held.dim)
    factors, triangles, ranks = [torch.zeros(0, held.dim, dtype=dtype)], [], []
    together: list[int | None] = [None] * bool(held.classes)
    for c in held.classes if by_class else together:
        squares = None
        if not held.factor_is_smaller(c):
            squares = held.scatter() if c is None else held.covariance(c)
        if squares is None or 0 < squares.diag().max() < torch.finfo(dtype).tiny:
            factors.append(held.factor(c).to(dtype))
            ranks.append(len(factors[-1]))
        else:
            triangles.append(squares[upper[0], upper[1]].to(dtype))
            ranks.append(-1)
    return {
        "ranks": torch.tensor(ranks, dtype=I64),
        "factors": torch.cat(factors),
        "triangles": torch.stack(triangles)
        if triangles
        else torch.zeros(0, upper.shape[1], dtype=dtype),
    }


def _take_whole(
    message: wire.Message, held: Tensor, schema: MessageSchema
) -> Statistics:
    """Read uncompressed statistics; `held` [C] are the counts."""
    form, dim = schema.statistics, schema.dim
    labels = torch.nonzero(held).flatten()
    counts = held[labels]
    weights = None
    if form.weighted:
        weights = torch.zeros(schema.num_classes, dtype=F64)
        weights[labels] = take_weights(message, len(labels))
    means = message.tensor("means", F64, (len(labels), dim), EMBEDDINGS)
    all_means = torch.zeros(schema.num_classes, dim, dtype=F64)
    all_means[labels] = means
    if form.content == "means":
        return Statistics.of_means(held, all_means, weights)
    freedom = counts - 1
    if form.content == "pooled":
        freedom = freedom.sum()[None] if len(labels) else freedom
    factors, triangles = _take_scatters(message, freedom, dim, form)
    if not len(labels):
        return schema.no_statistics
    if form.content == "pooled":
        scatter = factors.get(0), triangles.get(0)
        return Statistics.of_pooled(held, all_means, *scatter, weights)
    classes = labels.tolist()
    return Statistics.from_moments(
        held,
        all_means,
        factors={classes[i]: factor for i, factor in factors.items()},
        covariances={classes[i]: sigma for i, sigma in triangles.items()},
        weights=weights,
    )


def take_weights(message: wire.Message, groups: int) -> Tensor:
    """Read the sums of the rows' weights of some groups: shape (groups,), float64."""
    weights = message.tensor("weights", F64, (groups,))
    if ((weights <= 0) | (weights > wire.LARGEST)).any():
        raise message.refuse("weights", f"weights must lie in 0..{wire.LARGEST}")
    return weights


def _take_scatters(message, freedom: Tensor, dim: int, form: StatisticsForm):
    """Read factors and matrices, by position. `freedom` limits their ranks."""
    dtype = _dtype(form)
    ranks = message.tensor("ranks", I64, (len(freedom),))
    is_factor = ranks >= 0
    if (ranks < -1).any() or (ranks > freedom.clamp(max=dim)).any():
        raise message.refuse(
            "ranks",
            "the factor of n rows in D dimensions has at most n - 1 and at most D rows",
        )
    if (~is_factor & (freedom == 0)).any():
        raise message.refuse(
            "ranks",
            "the covariance of a single sample must be sent as a factor without rows",
        )
    most = LARGEST_EMBEDDING * wire.LARGEST**0.5
    shape = int(ranks[is_factor].sum()), dim
    factors = message.tensor("factors", dtype, shape, (-most, most))
    size = dim * (dim + 1) // 2
    triangles = message.tensor("triangles", dtype, (int((~is_factor).sum()), size))
    by_position = dict(
        zip(
            torch.nonzero(is_factor).flatten().tolist(),
            factors.split(ranks[is_factor].tolist()),
        )
    )
    matrices = {}
    upper = torch.triu_indices(dim, dim)
    positions = torch.nonzero(~is_factor).flatten().tolist()
    for position, triangle in zip(positions, triangles):
        sigma = torch.zeros(dim, dim, dtype=F64)
        sigma[upper[0], upper[1]] = triangle.double()
        sigma = sigma + sigma.T - sigma.diag().diag()
        # a covariance, or a scatter, which sums at most wire.LARGEST covariances
        largest = LARGEST_EMBEDDING**2 * (
            wire.LARGEST if form.content == "pooled" else 1
        )
        if sigma.diag().max() > largest:
            raise message.refuse("triangles", "no embeddings have such a scatter")
        if not _is_positive_semidefinite(sigma, 1e-11 if form.exact else 1e-5):
            raise message.refuse(
                "triangles", "a covariance must be positive semi-definite"
            )
        matrices[position] = sigma
    return by_position, matrices


def _is_positive_semidefinite(sigma: Tensor, rounding: float) -> bool:
    """Test a matrix by one Cholesky decomposition of Sigma + eps I.

    eps covers the rounding in the message.
    """
    diagonal = sigma.diag()
    if not sigma.any():
        return True
    eps = rounding * diagonal.max().clamp(min=0)
    shifted = sigma + eps * torch.eye(len(sigma), dtype=sigma.dtype)
    return bool(torch.linalg.cholesky_ex(shifted).info == 0)
