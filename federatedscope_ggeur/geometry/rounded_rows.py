"""Rows in few bits, each row with its own scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: The types that rows may be stored in, by name.
ROW_DTYPES = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8}
#: In int8 the largest entry of a row becomes this number.
_LARGEST = 127.0


@dataclass(frozen=True)
class RoundedRows:
    """Rows in few bits. Row i is ``scales[i] * numbers[i]``.

    Attributes
    ----------
    numbers : Tensor of shape (r, D), one of `ROW_DTYPES`
    scales : Tensor of shape (r,), float64
        Not negative. Each scale restores the length that its row had before rounding.
        So the trace of ``R^T R``, the sum of squares of all entries, stays the same.

    Notes
    -----
    In floating point the largest entry of a row becomes 1, so rows of any size fit. In
    int8 the largest entry becomes 127, or less if `of` is given a coarser step. The
    error of an int8 entry is at most half a step. The relative error of a
    floating-point entry is at most 2^-11 (float16) or 2^-24 (float32). Restoring the
    length changes entries too, but only in second order.
    """

    numbers: Tensor
    scales: Tensor

    @classmethod
    def of(cls, rows: Tensor, dtype: str, step: float = 0.0) -> RoundedRows:
        """Round rows of shape (r, D), float64, to `dtype`, one of `ROW_DTYPES`.

        In int8 the steps between numbers are at least `step`. A row with few steps
        takes few bits once it is packed. A row that rounds to zero stays zero, whatever
        its length was.
        """
        kind = ROW_DTYPES[dtype]
        peaks = rows.abs().amax(dim=1)
        # Divided by their peaks, rows have lengths that neither under- nor overflow.
        unit = rows / torch.where(peaks > 0, peaks, torch.ones_like(peaks))[:, None]
        numbers = unit
        if kind is torch.int8:
            levels = peaks.new_full(peaks.shape, _LARGEST)
            if step > 0:
                levels = levels.minimum(peaks / step)
            numbers = (unit * levels[:, None]).round()
        numbers = numbers.to(kind)
        lengths = numbers.double().norm(dim=1)
        scales = peaks * (unit.norm(dim=1) / lengths.clamp(min=1))
        return cls(numbers, torch.where(lengths > 0, scales, 0 * scales))

    def rows(self) -> Tensor:
        """The rounded rows as floats: Tensor of shape (r, D), float64."""
        return self.numbers.double() * self.scales[:, None]
