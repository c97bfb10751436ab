"""Every registered method, with settings under which it acts.

A method that acts by its defaults needs no line here.
"""

from __future__ import annotations

from federatedscope_ggeur.cfg_ggeur.fs_keys import section_of
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS

#: FedProx and FedOpt have FederatedScope's defaults, which do next to nothing; FedGen's
#: generator would cost the tests minutes.
SETTINGS = {
    "fedprox": {"mu": 0.5},
    "fedopt": {"type": "Yogi", "lr": 0.1},
    "fedgen": {"noise_dim": 4, "hidden": 8, "lr": 0.01, "steps": 5},
}


def built(parts) -> dict:
    return {name: part(**SETTINGS.get(name, {})) for name, part in parts.items()}


#: Those whose step is a mean over clients.
FEDERATED = {
    name: method
    for name, method in built(METHODS).items()
    if method.federated and not method.pools_data
}
#: Those of them that are not FedAvg, whose weights they are compared with.
OTHERS = {name: method for name, method in FEDERATED.items() if name != "fedavg"}
ADDED = built(AUGMENTATIONS)


def words(name: str) -> list:
    """The base method called `name` as KEY VALUE pairs."""
    section = section_of(METHODS[name])
    chosen = ["ggeur.base_method", name]
    for key, value in SETTINGS.get(name, {}).items():
        chosen += [f"{section}.{key}", value]
    return chosen
