"""Federated optimisation methods, one file each. `base` defines what a method is.

A new method is one file of this folder, which registers it.
"""

from federatedscope_ggeur.settings import import_modules

from .base import Method, initial_weights, weighted_mean
from .batched import BatchedHooks, GroupBatch
from .combined import Combined
from .contexts import (
    Batch,
    LinearCorrection,
    LocalContext,
    LocalHooks,
    LocalOutcome,
    ServerContext,
    Update,
)
from .fedavg import FedAvg
from .registry import (
    AUGMENTATIONS,
    METHODS,
    build_method,
    register_augmentation,
    register_method,
)
from .tensors import TensorSpec

import_modules(__name__, __path__)
# Every method's class can also be imported from here.
for _part in (*METHODS.values(), *AUGMENTATIONS.values()):
    globals()[_part.__name__] = _part
