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
from federatedscope_ggeur.methods.fedavgm import FedAvgM
from federatedscope_ggeur.methods.feddyn import FedDyn
from federatedscope_ggeur.methods.fedntd import FedNTD
from federatedscope_ggeur.methods.fedopt import FedOpt
from federatedscope_ggeur.methods.fedproto import FedProto
from federatedscope_ggeur.methods.fedprox import FedProx
from federatedscope_ggeur.methods.moon import Moon
from federatedscope_ggeur.methods.scaffold import Scaffold

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        FedAvg,
        FedProx,
        Scaffold,
        Moon,
        FedDyn,
        FedOpt,
        FedAvgM,
        FedProto,
        FedNTD,
    )
}


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
    "FedAvgM",
    "FedDyn",
    "FedNTD",
    "FedOpt",
    "FedProto",
    "FedProx",
    "LocalContext",
    "LocalHooks",
    "LocalOutcome",
    "Method",
    "Moon",
    "Scaffold",
    "ServerContext",
    "Update",
    "build_method",
    "weighted_mean",
]
