"""Federated optimisation methods, one file each; `base` says what one is.

A file of this folder that registers a method needs no line anywhere else.
"""

from importlib import import_module
from pkgutil import iter_modules

from federatedscope_ggeur.methods.base import (
    Batch,
    LocalContext,
    LocalHooks,
    LocalOutcome,
    Method,
    ServerContext,
    Update,
    initial_weights,
    weighted_mean,
)
from federatedscope_ggeur.methods.combined import Combined
from federatedscope_ggeur.methods.fedavg import FedAvg
from federatedscope_ggeur.methods.registry import (
    AUGMENTATIONS,
    METHODS,
    build_method,
    register_augmentation,
    register_method,
)
from federatedscope_ggeur.methods.tensors import TensorSpec

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
# Every method's class can be imported from here as well.
globals().update(
    {
        part.__name__: part
        for parts in (METHODS, AUGMENTATIONS)
        for part in parts.values()
    }
)

__all__ = [
    "AUGMENTATIONS",
    "METHODS",
    "Batch",
    "Combined",
    "FedAvg",
    "LocalContext",
    "LocalHooks",
    "LocalOutcome",
    "Method",
    "ServerContext",
    "TensorSpec",
    "Update",
    "build_method",
    "initial_weights",
    "register_augmentation",
    "register_method",
    "weighted_mean",
]
