"""The longest answer that a schema allows, known before the answer is read."""

from __future__ import annotations

import torch

from federatedscope_ggeur.methods.tensors import Specs

#: Bytes beside tensors: the frame of safetensors, numbers, texts. A message without
#: tensors fits in.
PLAIN = 64 * 1024


def of_tensors(numbers: int | None, specs: Specs) -> int | None:
    """Bytes of the longest message with so many weights and the tensors of a method.

    None if neither schema nor method bounds it.
    """
    if numbers is None:
        return None
    size = PLAIN + 4 * numbers
    for spec in specs.values():
        item = torch.empty(0, dtype=spec.dtype).element_size()
        for length in spec.shape:
            if length is None:
                return None
            item *= length
        size += item
    return size
