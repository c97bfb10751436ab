"""Messages as bytes: safetensors with a JSON header, checked when they are read."""

from federatedscope_ggeur.federation.wire.packing import (
    LARGEST,
    VERSION,
    Message,
    pack,
    sealed,
    shape_problem,
    size_with,
    under,
    unpack,
)
