"""Fused kernels of a step of linear heads by SGD, in Triton.

The plain way takes some ten kernels for a step, each with little work. Here a step has
three: logits, residuals, update. They compute what `BatchedLinear` and `BatchedSGD` do,
in float32 throughout. Sums have a fixed order, so a step repeats its bits.

The module needs Triton, which comes with torch for NVIDIA GPUs. So only `fused_kernels`
imports it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Classes up to which a row's logits fit one program.
MOST_CLASSES = 1024
#: Programs that fill a GPU.
_PROGRAMS = 160
#: The least rows or classes of a product, and the dimensions taken at a time.
_LEAST, _DEPTH = 16, 32


@triton.jit
def _logits(
    features,
    rows,
    sizes,
    weights,
    partial,
    row_stride,
    weight_stride,
    clients,
    batch,
    classes,
    dim,
    span,
    BATCH: tl.constexpr,
    CLASSES: tl.constexpr,
    DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Partial logits [splits, A, B, C] over `span` dimensions for each split."""
    client, tile, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    size = tl.load(sizes + client)
    tiles_of_classes = tl.cdiv(classes, CLASSES)
    row = (tile // tiles_of_classes) * BATCH + tl.arange(0, BATCH)
    label = (tile % tiles_of_classes) * CLASSES + tl.arange(0, CLASSES)
    if (tile // tiles_of_classes) * BATCH < size:
        held = row < size
        place = tl.load(rows + client * batch + row, mask=held, other=0).to(tl.int64)
        x_rows = features + place[:, None] * row_stride
        w_rows = weights + client.to(tl.int64) * weight_stride + label[:, None] * dim
        total = tl.zeros((BATCH, CLASSES), dtype=tl.float32)
        for first in range(split * span, split * span + span, DIM):
            d = first + tl.arange(0, DIM)
            inside = d < dim
            x = tl.load(
                x_rows + d[None, :], mask=held[:, None] & inside[None, :], other=0.0
            )
            w = tl.load(
                w_rows + d[None, :],
                mask=(label < classes)[:, None] & inside[None, :],
                other=0.0,
            )
            total += tl.dot(x, tl.trans(w), input_precision=PRECISION)
        base = partial + ((split * clients + client).to(tl.int64) * batch) * classes
        tl.store(
            base + row[:, None] * classes + label[None, :],
            total,
            mask=held[:, None] & (label < classes)[None, :],
        )


@triton.jit
def _residuals(
    labels,
    rows,
    sizes,
    weights,
    partial,
    residuals,
    weight_stride,
    clients,
    batch,
    classes,
    dim,
    SPLITS: tl.constexpr,
    CLASSES: tl.constexpr,
):
    """``(softmax - one-hot) / size`` of each row: [A, B, C]."""
    client, row = tl.program_id(0), tl.program_id(1)
    size = tl.load(sizes + client)
    if row < size:
        label = tl.arange(0, CLASSES)
        is_class = label < classes
        bias = weights + client.to(tl.int64) * weight_stride + classes * dim
        logits = tl.load(bias + label, mask=is_class, other=0.0)
        place = (client.to(tl.int64) * batch + row) * classes + label
        for split in tl.static_range(SPLITS):
            part = partial + split * clients * batch * classes
            logits += tl.load(part + place, mask=is_class, other=0.0)
        logits = tl.where(is_class, logits, float("-inf"))
        powers = tl.exp(logits - tl.max(logits, axis=0))
        softmax = powers / tl.sum(powers, axis=0)
        at = tl.load(rows + client * batch + row).to(tl.int64)
        one_hot = (label == tl.load(labels + at)).to(tl.float32)
        tl.store(residuals + place, (softmax - one_hot) / size, mask=is_class)


@triton.jit
def _update(
    features,
    rows,
    sizes,
    weights,
    buffers,
    constants,
    residuals,
    rates,
    momenta,
    row_stride,
    weight_stride,
    constant_stride,
    batch,
    classes,
    dim,
    pull,
    CORRECTS: tl.constexpr,
    BATCH: tl.constexpr,
    CLASSES: tl.constexpr,
    DIM: tl.constexpr,
):
    """``m = beta m + gradient + pull w + constant``, then ``w -= rate m``."""
    client = tl.program_id(0)
    size = tl.load(sizes + client)
    if size > 0:
        label = tl.program_id(1) * CLASSES + tl.arange(0, CLASSES)
        d = tl.program_id(2) * DIM + tl.arange(0, DIM)
        is_class, inside = label < classes, d < dim
        gradient = tl.zeros((CLASSES, DIM), dtype=tl.float32)
        of_bias = tl.zeros((CLASSES,), dtype=tl.float32)
        for first in range(0, size, BATCH):
            row = first + tl.arange(0, BATCH)
            held = row < size
            back = tl.load(
                residuals
                + client.to(tl.int64) * batch * classes
                + row[:, None] * classes
                + label[None, :],
                mask=held[:, None] & is_class[None, :],
                other=0.0,
            )
            at = tl.load(rows + client * batch + row, mask=held, other=0).to(tl.int64)
            x = tl.load(
                features + at[:, None] * row_stride + d[None, :],
                mask=held[:, None] & inside[None, :],
                other=0.0,
            )
            gradient += tl.dot(tl.trans(back), x, input_precision="ieee")
            of_bias += tl.sum(back, axis=0)
        rate, beta = tl.load(rates + client), tl.load(momenta + client)
        here = client.to(tl.int64) * weight_stride
        fixed = client.to(tl.int64) * constant_stride
        place = label[:, None] * dim + d[None, :]
        mask = is_class[:, None] & inside[None, :]
        weight = tl.load(weights + here + place, mask=mask, other=0.0)
        buffer = tl.load(buffers + here + place, mask=mask, other=0.0)
        buffer = beta * buffer + gradient + pull * weight
        if CORRECTS:
            buffer += tl.load(constants + fixed + place, mask=mask, other=0.0)
        tl.store(buffers + here + place, buffer, mask=mask)
        tl.store(weights + here + place, weight - rate * buffer, mask=mask)
        if tl.program_id(2) == 0:
            end = classes * dim + label
            bias = tl.load(weights + here + end, mask=is_class, other=0.0)
            moved = tl.load(buffers + here + end, mask=is_class, other=0.0)
            moved = beta * moved + of_bias + pull * bias
            if CORRECTS:
                moved += tl.load(constants + fixed + end, mask=is_class, other=0.0)
            tl.store(buffers + here + end, moved, mask=is_class)
            tl.store(weights + here + end, bias - rate * moved, mask=is_class)


@dataclass(frozen=True)
class Tiles:
    """How the kernels divide their work. Sizes are powers of two.

    The numbers were measured on an H200; see `benchmarks/gpu.py`.
    """

    classes: int
    splits: int
    update_classes: int
    update_dim: int

    @classmethod
    def of(cls, clients: int, batch: int, classes: int, dim: int) -> Tiles:
        """Tiles that fill a GPU for A clients with B rows of D numbers, C classes."""
        wide = min(64, _power(classes))
        programs = clients * -(-batch // _LEAST) * -(-classes // wide)
        splits = 1
        while splits < 16 and programs * splits < _PROGRAMS and dim > 32 * splits:
            splits *= 2
        tall, deep = min(32, _power(classes)), 64
        if clients * -(-classes // tall) * -(-dim // deep) < _PROGRAMS:
            deep = 32
        return cls(wide, splits, tall, deep)


class LinearSteps:
    """Steps of SGD on the linear heads of A clients, by the fused kernels.

    Parameters
    ----------
    weights, buffers : Tensor of shape (A, P or more), float32
        The weights, and the optimiser's momentum. Rows are contiguous.
    features : Tensor of shape (N, D), float32
        The rows of all clients.
    labels : Tensor of shape (N,), int64
    classes, batch : int
        The number C of classes, and the size B of a whole batch.
    rates, momenta : Tensor of shape (A,), float32
    pull : float
        The factor of the weights in the gradient.
    constants : Tensor of shape (A, P) or (1, P), float32, or None
        What is added to the gradient.
    """

    def __init__(
        self,
        weights: Tensor,
        buffers: Tensor,
        features: Tensor,
        labels: Tensor,
        classes: int,
        batch: int,
        rates: Tensor,
        momenta: Tensor,
        pull: float,
        constants: Tensor | None,
    ):
        clients, dim = weights.shape[0], features.shape[1]
        self._tiles = Tiles.of(clients, batch, classes, dim)
        self._precision = _precision(weights.device)
        self._sizes = clients, batch, classes, dim
        self._held = weights, buffers, features, labels
        self._rates, self._momenta, self._pull = rates, momenta, pull
        self._constants = constants
        new = weights.new_empty
        self._partial = new(self._tiles.splits, clients, batch, classes)
        self._residuals = new(clients, batch, classes)

    def step(self, rows: Tensor, sizes: Tensor) -> None:
        """Take a step on the rows numbered `rows` [A, B], of which `sizes` [A] count.

        Both are int32 and contiguous. A client with size 0 does not move.
        """
        clients, batch, classes, dim = self._sizes
        weights, buffers, features, labels = self._held
        tiles, residuals = self._tiles, self._residuals
        stride = weights.stride(0)
        span = -(-dim // (tiles.splits * _DEPTH)) * _DEPTH
        down, across = -(-batch // _LEAST), -(-classes // tiles.classes)
        _logits[clients, down * across, tiles.splits](
            features,
            rows,
            sizes,
            weights,
            self._partial,
            features.stride(0),
            stride,
            clients,
            batch,
            classes,
            dim,
            span,
            BATCH=_LEAST,
            CLASSES=tiles.classes,
            DIM=_DEPTH,
            PRECISION=self._precision,
        )
        _residuals[clients, batch](
            labels,
            rows,
            sizes,
            weights,
            self._partial,
            residuals,
            stride,
            clients,
            batch,
            classes,
            dim,
            SPLITS=tiles.splits,
            CLASSES=_power(classes),
            num_warps=1,
        )
        constants = weights if self._constants is None else self._constants
        down, across = -(-classes // tiles.update_classes), -(-dim // tiles.update_dim)
        _update[clients, down, across](
            features,
            rows,
            sizes,
            weights,
            buffers,
            constants,
            residuals,
            self._rates,
            self._momenta,
            features.stride(0),
            stride,
            0 if constants.shape[0] == 1 else constants.stride(0),
            batch,
            classes,
            dim,
            self._pull,
            CORRECTS=self._constants is not None,
            BATCH=min(32, _power(batch)),
            CLASSES=tiles.update_classes,
            DIM=tiles.update_dim,
        )


def _power(number: int) -> int:
    """The least power of two that is at least `number` and at least `_LEAST`."""
    return max(_LEAST, 1 << (number - 1).bit_length())


def _precision(device: torch.device) -> str:
    """How `_logits` multiplies: by tensor cores in three parts, where there are any.

    The parts keep the digits of float32.
    """
    if device.type != "cuda":
        return "ieee"  # Triton's interpreter
    major, _ = torch.cuda.get_device_capability(device)
    return "tf32x3" if major >= 8 else "ieee"
