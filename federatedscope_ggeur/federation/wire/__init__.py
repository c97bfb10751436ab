"""Writes messages as safetensors with a JSON header, and checks them when read."""

from .packing import (
    LARGEST,
    VERSION,
    Message,
    pack,
    packed_size,
    sealed,
    shape_problem,
    under,
    unpack,
)
