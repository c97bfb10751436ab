"""The size of the longest answer that a schema allows."""

from __future__ import annotations

import torch

from federatedscope_ggeur.methods.tensors import Specs

#: Bytes beside tensors: the frame of safetensors, numbers, texts. A message without
#: tensors fits in.
PLAIN = 64 * 1024


def of_tensors(numbers: int | None, specs: Specs) -> int | None:
    """The size in bytes of the longest message with weights and tensors of a method.

    `numbers` counts the weights. The result is None if there is no limit.
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
