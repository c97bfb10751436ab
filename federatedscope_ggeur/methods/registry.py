"""The registries of federated methods and of baseline augmentations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from federatedscope_ggeur.settings import Registry, check_class

from .base import Method
from .checked import checked
from .combined import Combined

#: FedAvg comes first, then the others by module name, then a user's own.
METHODS: Registry[type[Method]] = Registry("method", "base_method")

#: Augmentations that replace GGEUR. Each runs with any of METHODS that is federated.
AUGMENTATIONS: Registry[type[Method]] = Registry(
    "augmentation", "augmentation", taken=("ggeur", "none")
)


def register_method(name: str) -> Callable[[type[Method]], type[Method]]:
    """Decorator: register a subclass of `Method` as ``ggeur.base_method: <name>``.

    Its `SETTINGS` become the keys ``ggeur.<name>.<setting>``.

    Raises
    ------
    TypeError
        The class is no `Method`, or a hook has a wrong name or wrong arguments.
    ValueError
        The name is taken.

    Examples
    --------
    >>> @register_method("half_way")
    ... class HalfWay(Method):
    ...     def step(self, params, updates, state, context):
    ...         return (params + weighted_mean(params, updates)) / 2, state
    """
    return _registered(METHODS, name)


def register_augmentation(name: str) -> Callable[[type[Method]], type[Method]]:
    """Decorator: register a subclass of `Method` as ``ggeur.augmentation: <name>``.

    The augmentation runs with any base method. The run takes only the state from its
    `step`. Settings and errors are as for `register_method`.

    Examples
    --------
    >>> @register_augmentation("noise")
    ... class Noise(Method):
    ...     def local(self, context):
    ...         return LocalHooks(transform=lambda x, y: x + 0.1 * torch.randn_like(x))
    """
    return _registered(AUGMENTATIONS, name)


def _registered(
    registry: Registry[type[Method]], name: str
) -> Callable[[type[Method]], type[Method]]:
    def register(part: type[Method]) -> type[Method]:
        check_class(f"the {registry.kind} '{name}'", part, Method)
        return registry.add(name, checked(part))

    return register


def build_method(
    name: str,
    augmentation: str = "ggeur",
    augmentation_settings: Mapping | None = None,
    **settings,
) -> Method:
    """Make the method called `name` with its settings.

    A baseline `augmentation` is combined with the method. "ggeur" and "none" change
    nothing here.

    Raises
    ------
    ConfigError
        A name is unknown, or the method's clients send no weights, which an
        augmentation needs.
    """
    base = METHODS.find(name)(**settings)
    if augmentation in AUGMENTATIONS.taken:
        return base
    part = AUGMENTATIONS.find(augmentation)
    return Combined(base, part(**(augmentation_settings or {})))
