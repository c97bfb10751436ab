"""Federated optimisation methods, one file each; `base` says what one is."""

from __future__ import annotations

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods.base import (
    Batch,
    LocalContext,
    LocalHooks,
    LocalOutcome,
    Method,
    ServerContext,
    Update,
    weighted_mean,
)
from federatedscope_ggeur.methods.fedavg import FedAvg

METHODS: dict[str, type[Method]] = {method.name: method for method in (FedAvg,)}


def build_method(name: str, **settings) -> Method:
    """The method called `name` (`ggeur.base_method`) with its settings."""
    if name not in METHODS:
        raise ConfigError(
            f"ggeur.base_method: unknown method {name!r}; known: {sorted(METHODS)}"
        )
    return METHODS[name](**settings)


__all__ = [
    "METHODS",
    "Batch",
    "FedAvg",
    "LocalContext",
    "LocalHooks",
    "LocalOutcome",
    "Method",
    "ServerContext",
    "Update",
    "build_method",
    "weighted_mean",
]
