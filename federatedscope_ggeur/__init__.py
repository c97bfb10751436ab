"""Federated classification on frozen image embeddings (GGEUR), for FederatedScope.

`__all__` lists the public interface of the core; extras add names to it. A name is
imported at its first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from federatedscope_ggeur.former_names import FormerNames
from federatedscope_ggeur.version import __version__

__all__ = [
    "ClassStatistics",
    "FederatedClassifier",
    "FederatedData",
    "GeometricShape",
    "Predictor",
    "Results",
    "__version__",
    "augment",
    "load_config",
    "register_augmentation",
    "register_closed_form",
    "register_encoder",
    "register_exchange",
    "register_image_reader",
    "register_method",
    "register_reader",
    "register_splitter",
    "register_step",
    "run",
]

#: Where each public name is from.
_HOMES = {
    "ClassStatistics": "geometry",
    "FederatedClassifier": "estimator",
    "FederatedData": "data",
    "GeometricShape": "geometry",
    "Predictor": "predictor",
    "Results": "reporting",
    "augment": "geometry",
    "load_config": "cfg_ggeur.load",
    "register_augmentation": "methods",
    "register_closed_form": "models",
    "register_encoder": "data",
    "register_exchange": "federation.exchanges",
    "register_image_reader": "data",
    "register_method": "methods",
    "register_reader": "data",
    "register_splitter": "data",
    "register_step": "federation.steps",
    "run": "engines.run",
}

if TYPE_CHECKING:
    from federatedscope_ggeur.cfg_ggeur.load import load_config
    from federatedscope_ggeur.data import (
        FederatedData,
        register_encoder,
        register_image_reader,
        register_reader,
        register_splitter,
    )
    from federatedscope_ggeur.engines.run import run
    from federatedscope_ggeur.estimator import FederatedClassifier
    from federatedscope_ggeur.federation.exchanges import register_exchange
    from federatedscope_ggeur.federation.steps import register_step
    from federatedscope_ggeur.geometry import ClassStatistics, GeometricShape, augment
    from federatedscope_ggeur.methods import register_augmentation, register_method
    from federatedscope_ggeur.models import register_closed_form
    from federatedscope_ggeur.predictor import Predictor
    from federatedscope_ggeur.reporting import Results


sys.meta_path.append(FormerNames())


def __getattr__(name: str) -> Any:
    home = f"{__name__}.{_HOMES[name]}" if name in _HOMES else _of_extras().get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value  # the next use is a plain look-up
    return value


def _of_extras() -> dict[str, str]:
    """The public names that extras bring, each with its module."""
    from federatedscope_ggeur.extras import all_of

    return all_of("public")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_of_extras()})
