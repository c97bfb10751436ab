"""How long an answer can be: what its schema allows, known before it is read."""

from __future__ import annotations

import torch

from federatedscope_ggeur.federation.messages.schema import MessageSchema
from federatedscope_ggeur.methods.tensors import Specs

#: Bytes beside tensors: the frame of safetensors, numbers, texts. All that is asked
#: for without tensors, and all that is said unasked, fits in.
PLAIN = 64 * 1024


def of_statistics(schema: MessageSchema) -> int:
    """Bytes of the longest `StatisticsUpload`."""
    classes, dim, form = schema.num_classes, schema.dim, schema.statistics
    # Labels, counts, ranks; means, and the row that compression centres them by.
    size = 24 * classes + 8 * (classes + 1) * (dim + 1)
    if form.content == "means":
        return PLAIN + size
    scatters = classes if form.content == "class" else 1
    # The factor of a scatter whose squares underflow may have as many rows as columns.
    return PLAIN + size + scatters * 8 * dim * (dim + 1)


def of_totals(schema: MessageSchema) -> int:
    """Bytes of the longest `TotalsUpload`."""
    return PLAIN + 8 * schema.dim


def of_masked(numbers: int) -> int:
    """Bytes of the longest `MaskedVector` of so many numbers."""
    return PLAIN + 8 * numbers


def of_tensors(numbers: int | None, specs: Specs) -> int | None:
    """Bytes of the longest message with so many weights and the tensors of a method;
    None where neither schema nor method bounds it."""
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
