"""The package's own steps: the threshold, rounded means, what is needed, compression.

Rows of int8 are Huffman-coded: small numbers are frequent and take few bits.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.steps import Packing, Step, register_step
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import (
    LARGEST_EMBEDDING,
    ROW_DTYPES,
    CompressedStatistics,
    Compression,
    RoundedRows,
    Statistics,
)

from .keys import StatisticsKeys, needed_content

F64 = torch.float64
#: An upper bound of sums of squares of rows, and so of a scatter's trace or norm.
_LARGEST_ENERGY = LARGEST_EMBEDDING**2 * wire.LARGEST


@register_step("threshold")
@dataclass(frozen=True)
class Threshold(Step):
    """Leaves out the classes with fewer than `min_samples` rows.

    Such a class leaves no trace in the statistics, not even its count. So the mean of a
    single row, which is the row itself, is never sent (if `min_samples` is at least 2).

    The threshold does not limit what the statistics of other classes reveal; see
    docs/privacy.md. Up to 4 rows of a class can be reconstructed from its mean and
    covariance. If rows are non-negative, as after a ReLU, all of 5 rows and many of 20
    can be reconstructed. One upload shows without error whether a known row belongs to
    a class. Clients also train on withheld rows, so updates of a client's head depend
    on these rows, and the client's aggregation weight counts them.
    """

    min_samples: int

    TAKES_WEIGHTS = True

    @classmethod
    def of(cls, run: Demands) -> Threshold:
        return cls(run.min_samples)

    def leave(self, statistics: Statistics) -> Statistics:
        counts = statistics.counts
        kept = [c for c in statistics.classes if counts[c] >= self.min_samples]
        return statistics.restrict(kept)


@register_step("float32_means")
@dataclass(frozen=True)
class Float32Means(Step):
    """Rounds means to float32.

    Then the difference of two means, with and without a row, reveals this row only to
    1e-7 of its length.
    """

    TAKES_WEIGHTS = True

    @classmethod
    def of(cls, run: Demands) -> Float32Means | None:
        return cls() if run.of(StatisticsKeys).float32_means else None

    def leave(self, statistics: Statistics) -> Statistics:
        return statistics.with_means(statistics.means.float().double())


@register_step("needed")
@dataclass(frozen=True)
class Needed(Step):
    """Leaves of the scatters what the run needs: one summed over classes, or none."""

    content: str

    BY_CLASS = False
    TAKES_WEIGHTS = True

    @classmethod
    def of(cls, run: Demands) -> Needed | None:
        content = needed_content(run)
        return None if content == "class" else cls(content)

    def leave(self, statistics: Statistics) -> Statistics:
        return statistics.to(self.content)


@register_step("compress")
@dataclass(frozen=True)
class Compress(Packing):
    """Sends the main directions of the scatter, in few bits; the server restores it."""

    how: Compression

    @classmethod
    def of(cls, run: Demands) -> Compress | None:
        own = run.of(StatisticsKeys)
        if own.statistics != "compressed":
            return None
        rank, energy = own.compressed_rank, own.compressed_energy
        return cls(Compression(rank, energy, own.compressed_dtype))

    @property
    def asked_by(self) -> str:
        return f"{setting('statistics')} compressed"

    def leave(self, statistics: Statistics) -> CompressedStatistics:
        return CompressedStatistics.of(statistics, self.how)

    def arrive(self, statistics: CompressedStatistics) -> Statistics:
        return statistics.restore()

    def write(self, packed: CompressedStatistics) -> wire.Content:
        numbers, tensors = {}, _pack_rows("means", packed.means)
        if packed.factor is not None:
            numbers["left_out"] = packed.left_out
            tensors.update(_pack_rows("factor", packed.factor))
        return numbers, tensors

    def read(
        self, message: wire.Message, counts: Tensor, schema: MessageSchema
    ) -> CompressedStatistics:
        classes = int((counts > 0).sum())
        rows = classes + 1 if classes else 0
        means = self._read_rows(message, "means", schema.dim, rows, rows)
        if (means.rows().abs() > 2 * LARGEST_EMBEDDING).any():
            raise message.refuse("means", "a mean is larger than embeddings may be")
        factor, left_out = None, 0.0
        if schema.statistics.content != "means":
            factor, left_out = self._read_factor(message, counts, schema.dim)
        return CompressedStatistics(counts, means, factor, left_out)

    def _read_factor(
        self, message: wire.Message, counts: Tensor, dim: int
    ) -> tuple[RoundedRows, float]:
        """Read the factor, and the energy that it leaves out.

        The number of rows of the factor is limited by `counts` and `dim`.
        """
        freedom = int((counts - 1).clamp(min=0).sum())
        most = min(freedom, dim, dim if self.how.rank is None else self.how.rank)
        factor = self._read_rows(message, "factor", dim, 0, most)
        if (factor.rows().abs() > LARGEST_EMBEDDING * wire.LARGEST**0.5).any():
            problem = "the scatter is larger than embeddings allow"
            raise message.refuse("factor", problem)
        left_out = message.number("left_out", _LARGEST_ENERGY * dim)
        if left_out and len(factor.scales) >= min(freedom, dim):
            problem = (
                f"must be 0, since {len(factor.scales)} directions are all that there "
                f"are; got {left_out:g}"
            )
            raise message.refuse("left_out", problem)
        return factor, left_out

    def _read_rows(
        self, message: wire.Message, name: str, dim: int, least: int, most: int
    ) -> RoundedRows:
        """Read rounded rows: `least` to `most` rows in `dim` dimensions."""
        scales = message.tensor(f"{name}_scales", F64, (None,), (0, math.inf))
        if not least <= len(scales) <= most:
            problem = f"expected {least} to {most} rows, got {len(scales)}"
            raise message.refuse(f"{name}_scales", problem)
        shape, kind = (len(scales), dim), ROW_DTYPES[self.how.dtype]
        if kind is not torch.int8:
            return RoundedRows(message.tensor(name, kind, shape), scales)
        packed = message.tensor(name, torch.uint8, (None,))
        size = shape[0] * shape[1]
        content = _read_huffman(packed, size)
        if content is None:
            problem = f"does not unpack to {size} numbers"
            raise message.refuse(name, problem)
        numbers = torch.zeros(0, dtype=torch.int8)
        if size:
            numbers = torch.frombuffer(content, dtype=torch.int8)
        return RoundedRows(numbers.view(shape), scales)


def _pack_rows(name: str, held: RoundedRows) -> dict[str, Tensor]:
    numbers = held.numbers
    if numbers.dtype is torch.int8:
        numbers = _huffman(numbers)
    return {name: numbers, f"{name}_scales": held.scales}


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
