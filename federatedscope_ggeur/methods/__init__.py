"""Federated optimisation methods, one file each. `base` defines what a method is.

A new method is one file of this folder, which registers it.
"""

from federatedscope_ggeur.extras import parts_of
from federatedscope_ggeur.settings import import_modules

from .base import BatchedHooks, GroupBatch, Method, initial_weights, weighted_mean
from .contexts import (
    Batch,
    LinearCorrection,
    LocalContext,
    LocalHooks,
    LocalOutcome,
    ServerContext,
    TensorSpec,
    Update,
)
from .fedavg import FedAvg
from .registry import (
    AUGMENTATIONS,
    METHODS,
    Combined,
    build_method,
    register_augmentation,
    register_method,
)

import_modules(__name__, __path__)
for _registry in (METHODS, AUGMENTATIONS):
    _registry.expect(parts_of(_registry.field))
# Every method's class can also be imported from here, but for those of extras.
for _part in (*METHODS.present().values(), *AUGMENTATIONS.present().values()):
    globals()[_part.__name__] = _part
