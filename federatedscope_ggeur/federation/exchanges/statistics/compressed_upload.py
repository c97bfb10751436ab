"""The message with compressed statistics, and with the loss by compression.

Rows of int8 are Huffman-coded: small numbers are frequent and take few bits.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import (
    LARGEST_EMBEDDING,
    ROW_DTYPES,
    CompressedStatistics,
    Compression,
    CompressionLoss,
    RoundedRows,
    Statistics,
)

F64 = torch.float64

#: An upper bound of sums of squares of rows, and so of a scatter's trace or norm.
_LARGEST_ENERGY = LARGEST_EMBEDDING**2 * wire.LARGEST
#: The loss by compression as numbers: exact sums of squares and norms, which only the
#: client knows.
_LOST = ("scatter", "rounding", "means")


def pack_compressed(
    statistics: Statistics, how: Compression
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Compress `statistics` into numbers and tensors, without classes and counts."""
    held, loss = CompressedStatistics.of(statistics, how)
    numbers = {f"lost.{name}": getattr(loss, name) for name in _LOST}
    tensors = _pack_rows("means", held.means)
    if held.factor is not None:
        numbers["left_out"] = held.left_out
        tensors.update(_pack_rows("factor", held.factor))
    return numbers, tensors


def take_compressed(
    message: wire.Message, counts: Tensor, schema: MessageSchema
) -> tuple[CompressedStatistics, CompressionLoss]:
    """Read the statistics and the loss that `pack_compressed` wrote.

    `counts` [C] are the rows of each class.

    Raises
    ------
    MessageError
        A field has a value that the schema does not allow.
    """
    form, dim = schema.statistics, schema.dim
    assert form.compression is not None
    names = ["means", "factor"][: 1 if form.content == "means" else 2]
    message.only(["classes", "counts", *names, *(f"{n}_scales" for n in names)])
    classes = int((counts > 0).sum())
    rows = classes + 1 if classes else 0
    means = _take_rows(message, "means", form.compression, dim, rows, rows)
    if (means.rows().abs() > 2 * LARGEST_EMBEDDING).any():
        raise message.refuse("means", "a mean is larger than embeddings may be")
    factor, left_out = None, 0.0
    if form.content != "means":
        factor, left_out = _take_factor(message, counts, form.compression, dim)
    held = CompressedStatistics(counts, means, factor, left_out)
    lost = {n: message.number(f"lost.{n}", _LARGEST_ENERGY * dim) for n in _LOST}
    loss = CompressionLoss(energy=held.energy, left_out=left_out, **lost)
    return held, loss


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
    scales = message.tensor(f"{name}_scales", F64, (None,))
    if not least <= len(scales) <= most:
        problem = f"expected {least} to {most} rows, got {len(scales)}"
        raise message.refuse(f"{name}_scales", problem)
    if (scales < 0).any():
        raise message.refuse(f"{name}_scales", "scales must not be negative")
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
