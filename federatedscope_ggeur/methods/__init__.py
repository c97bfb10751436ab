"""Federated optimisation methods, one file each. `base` defines what a method is.

A new method is one file of this folder, which registers it.
"""

from federatedscope_ggeur.methods.base import Method, initial_weights, weighted_mean
from federatedscope_ggeur.methods.batched import BatchedHooks, GroupBatch
from federatedscope_ggeur.methods.combined import Combined
from federatedscope_ggeur.methods.contexts import (
    Batch,
    LinearCorrection,
    LocalContext,
    LocalHooks,
    LocalOutcome,
    ServerContext,
    Update,
)
from federatedscope_ggeur.methods.fedavg import FedAvg
from federatedscope_ggeur.methods.registry import (
    AUGMENTATIONS,
    METHODS,
    build_method,
    register_augmentation,
    register_method,
)
from federatedscope_ggeur.methods.tensors import TensorSpec
from federatedscope_ggeur.settings import import_modules

import_modules(__name__, __path__)
# Every method's class can also be imported from here.
for _part in (*METHODS.values(), *AUGMENTATIONS.values()):
    globals()[_part.__name__] = _part
