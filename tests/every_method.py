"""Every registered method of the core, with settings under which it acts.

A method that acts by its defaults needs no line here.
"""

from federatedscope_ggeur.cfg_ggeur.fs_keys import section_of
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import ModelSettings, build_model

#: FedProx and FedOpt have FederatedScope's defaults, which do next to nothing; FedGen's
#: generator would cost the tests minutes; FPL's temperature makes large differences of
#: rounding errors.
SETTINGS = {
    "fedprox": {"mu": 0.5},
    "fedopt": {"type": "Yogi", "lr": 0.1},
    "fedgen": {"noise_dim": 4, "hidden": 8, "lr": 0.01, "steps": 5},
    "fpl": {"temperature": 0.5},
}


HEAD = build_model(6, 4, ModelSettings())


def own(registry) -> list[str]:
    """The names of the core's own parts."""
    return [name for name in registry if not registry.is_expected(name)]


def built(registry) -> dict:
    """Those of the core's own that train heads on embeddings."""
    made = {name: registry[name](**SETTINGS.get(name, {})) for name in own(registry)}
    return {k: method for k, method in made.items() if not method.model_problem(HEAD)}


#: Those whose step is a mean over clients, of heads.
FEDERATED = {
    name: method
    for name, method in built(METHODS).items()
    if method.federated and not method.pools_data
}
#: The core's base methods, bounds among them.
ON_HEADS = own(METHODS)
#: Those of them that are not FedAvg, whose weights they are compared with.
OTHERS = {name: method for name, method in FEDERATED.items() if name != "fedavg"}
#: The core's baseline augmentations.
ADDED = built(AUGMENTATIONS)


def words(name: str) -> list:
    """The base method called `name` as KEY VALUE pairs."""
    section = section_of(METHODS[name])
    chosen = ["ggeur.base_method", name]
    for key, value in SETTINGS.get(name, {}).items():
        chosen += [f"{section}.{key}", value]
    return chosen
