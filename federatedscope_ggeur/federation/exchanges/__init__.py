"""The questions that a server asks its clients; each has a folder or a file."""

from importlib import import_module

from .base import (
    EXCHANGES,
    Absence,
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    refusal,
    register_exchange,
)

#: The order of the package's exchanges. Those of plugins follow.
ORDER = (
    "statistics",
    "closed_form",
    "space",
    "augmentation",
    "training",
    "evaluation",
    "personal",
    "calibration",
)
for _name in ORDER:
    import_module(f"{__name__}.{_name}")
