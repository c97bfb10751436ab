"""Writes messages as safetensors with a JSON header, and checks them when read."""

from federatedscope_ggeur.federation.wire.packing import (
    LARGEST,
    VERSION,
    Message,
    pack,
    packed_size,
    sealed,
    shape_problem,
    size_with,
    under,
    unpack,
)
