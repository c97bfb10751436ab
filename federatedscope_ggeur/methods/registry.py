"""The federated methods and baseline augmentations by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from federatedscope_ggeur.methods.base import Method
from federatedscope_ggeur.methods.combined import Combined
from federatedscope_ggeur.settings import Registry

#: FedAvg first, then by name of their modules; a user's own last.
METHODS: Registry[type[Method]] = Registry("method", "base_method")

#: What stands in GGEUR's place; each runs with any of METHODS that is federated.
AUGMENTATIONS: Registry[type[Method]] = Registry(
    "augmentation", "augmentation", taken=("ggeur", "none")
)


def register_method(name: str) -> Callable[[type[Method]], type[Method]]:
    """Decorator: the `Method` is what `base_method` calls `name`.

    Raises
    ------
    ValueError
        The name is taken.
    """
    return METHODS.registered(name)


def register_augmentation(name: str) -> Callable[[type[Method]], type[Method]]:
    """Decorator: the `Method` is a baseline augmentation, what `augmentation` calls
    `name`; of its `step` the state alone is used.

    Raises
    ------
    ValueError
        The name is taken.
    """
    return AUGMENTATIONS.registered(name)


def build_method(
    name: str,
    augmentation: str = "ggeur",
    augmentation_settings: Mapping | None = None,
    **settings,
) -> Method:
    """The method called `name` with its settings.

    With a baseline augmentation as `augmentation` the two in one. "ggeur" and "none"
    are no matter of the method.

    Raises
    ------
    ConfigError
        An unknown name, or an augmentation beside a method whose weights do not travel.
    """
    base = METHODS.find(name)(**settings)
    if augmentation in AUGMENTATIONS.taken:
        return base
    part = AUGMENTATIONS.find(augmentation)
    return Combined(base, part(**(augmentation_settings or {})))
