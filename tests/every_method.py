"""Every registered method, with settings under which it acts.

A method that acts by its defaults needs no line here.
"""

from __future__ import annotations

from federatedscope_ggeur.cfg_ggeur.fs_keys import section_of
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import ModelSettings, build_model

#: FedProx and FedOpt have FederatedScope's defaults, which do next to nothing; FedGen's
#: and FedPG's generators would cost the tests minutes; FedSAM has a setting of its
#: adaptive form; FPL's temperature makes large differences of rounding errors.
SETTINGS = {
    "fedprox": {"mu": 0.5},
    "fedopt": {"type": "Yogi", "lr": 0.1},
    "fedsam": {"adaptive": True},
    "fedgen": {"noise_dim": 4, "hidden": 8, "lr": 0.01, "steps": 5},
    "fedpg": {"images_per_class": 4, "noise_dim": 4, "steps": 3, "generator_batch": 8},
    "fpl": {"temperature": 0.5},
}


HEAD = build_model(6, 4, ModelSettings())


def built(parts) -> dict:
    """Those that train heads on embeddings; what needs a network is tested on its
    own."""
    made = {name: part(**SETTINGS.get(name, {})) for name, part in parts.items()}
    return {k: method for k, method in made.items() if not method.model_problem(HEAD)}


#: Those whose step is a mean over clients, of heads: these have no BatchNorm.
FEDERATED = {
    name: method
    for name, method in built(METHODS).items()
    if method.federated and not method.pools_data and not method.needs_norms
}
#: Base methods, bounds among them, that are not about BatchNorm: those that heads have.
ON_HEADS = [name for name, part in METHODS.items() if not part.needs_norms]
#: Those of them that are not FedAvg, whose weights they are compared with.
OTHERS = {name: method for name, method in FEDERATED.items() if name != "fedavg"}
_HEAD = build_model(6, 4, ModelSettings())
#: Baseline augmentations that act on embeddings: others need a network.
ADDED = {
    name: method
    for name, method in built(AUGMENTATIONS).items()
    if not method.model_problem(_HEAD)
}


def words(name: str) -> list:
    """The base method called `name` as KEY VALUE pairs."""
    section = section_of(METHODS[name])
    chosen = ["ggeur.base_method", name]
    for key, value in SETTINGS.get(name, {}).items():
        chosen += [f"{section}.{key}", value]
    return chosen
