"""The message that carries a client's class statistics in round 0.

Rows of int8 are Huffman-coded: small numbers are frequent and take few bits.

The min-count threshold: a class with too few rows stays out of statistics.
"""

from __future__ import annotations

import math
import zlib

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import (
    EACH_CLASS,
    MessageSchema,
    StatisticsForm,
)
from federatedscope_ggeur.geometry import (
    LARGEST_EMBEDDING,
    ROW_DTYPES,
    CompressedStatistics,
    Compression,
    RoundedRows,
    Statistics,
)

F64 = torch.float64

#: The numbers that embeddings and their means may have.
EMBEDDINGS = -LARGEST_EMBEDDING, LARGEST_EMBEDDING
#: An upper bound of sums of squares of rows, and so of a scatter's trace or norm.
_LARGEST_ENERGY = LARGEST_EMBEDDING**2 * wire.LARGEST


def pack_compressed(
    statistics: Statistics, how: Compression
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Compress `statistics` into numbers and tensors, without classes and counts."""
    held = CompressedStatistics.of(statistics, how)
    numbers, tensors = {}, _pack_rows("means", held.means)
    if held.factor is not None:
        numbers["left_out"] = held.left_out
        tensors.update(_pack_rows("factor", held.factor))
    return numbers, tensors


def take_compressed(
    message: wire.Message, counts: Tensor, schema: MessageSchema
) -> CompressedStatistics:
    """Read the statistics that `pack_compressed` wrote.

    `counts` [C] are the rows of each class.

    Raises
    ------
    MessageError
        A field has a value that the schema does not allow.
    """
    form, dim = schema.statistics, schema.dim
    assert form.compression is not None
    classes = int((counts > 0).sum())
    rows = classes + 1 if classes else 0
    means = _take_rows(message, "means", form.compression, dim, rows, rows)
    if (means.rows().abs() > 2 * LARGEST_EMBEDDING).any():
        raise message.refuse("means", "a mean is larger than embeddings may be")
    factor, left_out = None, 0.0
    if form.content != "means":
        factor, left_out = _take_factor(message, counts, form.compression, dim)
    return CompressedStatistics(counts, means, factor, left_out)


def _take_factor(
    message: wire.Message, counts: Tensor, how: Compression, dim: int
) -> tuple[RoundedRows, float]:
    """Read the factor, and the energy that it leaves out.

    The number of rows of the factor is limited by `counts` and `dim`.
    """
    freedom = int((counts - 1).clamp(min=0).sum())
    most = min(freedom, dim, dim if how.rank is None else how.rank)
    factor = _take_rows(message, "factor", how, dim, 0, most)
    if (factor.rows().abs() > LARGEST_EMBEDDING * wire.LARGEST**0.5).any():
        raise message.refuse("factor", "the scatter is larger than embeddings allow")
    left_out = message.number("left_out", _LARGEST_ENERGY * dim)
    if left_out and len(factor.scales) >= min(freedom, dim):
        problem = (
            f"must be 0, since {len(factor.scales)} directions are all that there "
            f"are; got {left_out:g}"
        )
        raise message.refuse("left_out", problem)
    return factor, left_out


def _pack_rows(name: str, held: RoundedRows) -> dict[str, Tensor]:
    numbers = held.numbers
    if numbers.dtype is torch.int8:
        numbers = _huffman(numbers)
    return {name: numbers, f"{name}_scales": held.scales}


def _take_rows(
    message: wire.Message, name: str, how: Compression, dim: int, least: int, most: int
) -> RoundedRows:
    """Read rounded rows: `least` to `most` rows in `dim` dimensions."""
    scales = message.tensor(f"{name}_scales", F64, (None,), (0, math.inf))
    if not least <= len(scales) <= most:
        problem = f"expected {least} to {most} rows, got {len(scales)}"
        raise message.refuse(f"{name}_scales", problem)
    shape, kind = (len(scales), dim), ROW_DTYPES[how.dtype]
    if kind is not torch.int8:
        return RoundedRows(message.tensor(name, kind, shape), scales)
    packed = message.tensor(name, torch.uint8, (None,))
    size = shape[0] * shape[1]
    content = _read_huffman(packed, size)
    if content is None:
        problem = f"does not unpack to {size} numbers"
        raise message.refuse(name, problem)
    numbers = torch.frombuffer(content, dtype=torch.int8) if size else torch.zeros(0)
    return RoundedRows(numbers.to(torch.int8).view(shape), scales)


def _huffman(numbers: Tensor) -> Tensor:
    """Pack int8 numbers as bytes [m], uint8: a raw deflate stream without matches.

    Deflate's matches between rows are rare and would cost more than they save.
    """
    coder = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    data = numbers.contiguous().numpy().tobytes()
    return torch.frombuffer(
        bytearray(coder.compress(data) + coder.flush()), dtype=torch.uint8
    )


def _read_huffman(packed: Tensor, size: int) -> bytearray | None:
    """Unpack `size` bytes packed by `_huffman`; None if that fails.

    No more than `size` bytes are ever unpacked.
    """
    reader = zlib.decompressobj(-15)
    try:
        content = reader.decompress(packed.numpy().tobytes(), size + 1)
    except zlib.error:
        return None
    whole = len(content) == size and reader.eof and not reader.unused_data
    return bytearray(content) if whole else None


F32, I64 = torch.float32, torch.int64


class StatisticsUpload(wire.Payload, kind="statistics"):
    """Round 0, client to server: class statistics, after the min-count threshold.

    A scatter travels as its thin factor or its upper triangle, whichever is smaller. It
    is float32, or float64 if `form` is exact. Means are float64, since the merge
    multiplies a rounding error by the mean's distance from the origin. If `form` has a
    compression, the message is that of `compressed_upload`.

    Attributes
    ----------
    client : int
    domain : str
    statistics : Statistics
        On arrival, compressed ones have been restored.
    form : StatisticsForm
    """

    client: int
    domain: str
    statistics: Statistics
    form: StatisticsForm = EACH_CLASS

    @classmethod
    def of(
        cls, client: int, domain: str, statistics: Statistics, form: StatisticsForm
    ) -> StatisticsUpload:
        """Make the upload: the part of class statistics that `form` sends."""
        return cls(client, domain, statistics.to(form.content), form)

    def write(self) -> wire.Content:
        statistics, form = self.statistics, self.form
        index = torch.tensor(statistics.classes, dtype=I64)
        numbers = {"client": self.client, "domain": self.domain}
        tensors = {"classes": index, "counts": statistics.counts[index]}
        if form.compression is not None:
            more, few = pack_compressed(statistics, form.compression)
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
        statistics: Statistics
        if form.compression is not None:
            statistics = take_compressed(message, held, schema).restore()
        else:
            statistics = _take_whole(message, held, schema)
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
    found = message.tensor("weights", F64, (groups,))
    if ((found <= 0) | (found > wire.LARGEST)).any():
        raise message.refuse("weights", f"weights must lie in 0..{wire.LARGEST}")
    return found


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


def apply_min_count(statistics: Statistics, min_samples: int) -> Statistics:
    """Leave out the classes with fewer than `min_samples` samples.

    Such a class leaves no trace in the statistics, not even its count. So the mean of a
    single row, which is the row itself, is never sent (if `min_samples` is at least 2).

    The threshold does not limit what the statistics of other classes reveal; see
    docs/privacy.md. Up to 4 rows of a class can be reconstructed from its mean and
    covariance. If rows are non-negative, as after a ReLU, all of 5 rows and many of 20
    can be reconstructed. One upload shows without error whether a known row belongs to
    a class. Clients also train on withheld rows, so updates of a client's head depend
    on these rows, and the client's aggregation weight counts them.
    """
    kept = [c for c in statistics.classes if statistics.counts[c] >= min_samples]
    return statistics.restrict(kept)


def coarse_means(statistics: Statistics) -> Statistics:
    """Round the means of statistics to float32.

    Then the difference of two means, with and without a row, reveals this row only to
    1e-7 of its length.
    """
    return statistics.with_means(statistics.means.float().double())
