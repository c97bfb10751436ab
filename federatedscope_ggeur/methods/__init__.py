"""Federated optimisation methods, one file each; `base` says what one is."""

from __future__ import annotations

from collections.abc import Mapping

from federatedscope_ggeur.errors import ConfigError
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
from federatedscope_ggeur.methods.centralised import Centralised
from federatedscope_ggeur.methods.combined import Combined
from federatedscope_ggeur.methods.fedavg import FedAvg
from federatedscope_ggeur.methods.fedavgm import FedAvgM
from federatedscope_ggeur.methods.feddyn import FedDyn
from federatedscope_ggeur.methods.fedfa import FedFA
from federatedscope_ggeur.methods.fedgen import FedGen
from federatedscope_ggeur.methods.fedmix import FedMix
from federatedscope_ggeur.methods.fedntd import FedNTD
from federatedscope_ggeur.methods.fedopt import FedOpt
from federatedscope_ggeur.methods.fedproto import FedProto
from federatedscope_ggeur.methods.fedprox import FedProx
from federatedscope_ggeur.methods.local import Local
from federatedscope_ggeur.methods.moon import Moon
from federatedscope_ggeur.methods.scaffold import Scaffold
from federatedscope_ggeur.methods.tensors import TensorSpec

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
        Local,
        Centralised,
    )
}


#: What stands in GGEUR's place as `ggeur.augmentation`; each runs with any of METHODS
#: that is federated.
AUGMENTATIONS: dict[str, type[Method]] = {
    rival.name: rival for rival in (FedMix, FedGen, FedFA)
}


def build_method(
    name: str,
    augmentation: str = "ggeur",
    rival_settings: Mapping | None = None,
    **settings,
) -> Method:
    """The method called `name` (`ggeur.base_method`) with its settings.

    With a rival of GGEUR as `augmentation` the two in one. "ggeur" and "none" are no
    matter of the method.

    Raises
    ------
    ConfigError
        An unknown name, or a rival beside a method whose weights do not travel.
    """
    if name not in METHODS:
        raise ConfigError(
            f"ggeur.base_method: unknown method {name!r}; known: {sorted(METHODS)}"
        )
    base = METHODS[name](**settings)
    if augmentation in ("ggeur", "none"):
        return base
    if augmentation not in AUGMENTATIONS:
        raise ConfigError(
            f"ggeur.augmentation: unknown augmentation {augmentation!r}; known: "
            f"{['ggeur', 'none', *sorted(AUGMENTATIONS)]}"
        )
    return Combined(base, AUGMENTATIONS[augmentation](**(rival_settings or {})))


__all__ = [
    "METHODS",
    "RIVALS",
    "Batch",
    "Centralised",
    "Combined",
    "FedAvg",
    "FedAvgM",
    "FedDyn",
    "FedFA",
    "FedGen",
    "FedMix",
    "FedNTD",
    "FedOpt",
    "FedProto",
    "FedProx",
    "Local",
    "LocalContext",
    "LocalHooks",
    "LocalOutcome",
    "Method",
    "Moon",
    "Scaffold",
    "ServerContext",
    "TensorSpec",
    "Update",
    "build_method",
    "initial_weights",
    "weighted_mean",
]
