"""Splitters (``data.splitter``). All modules of this folder are imported."""

from federatedscope_ggeur.data.splitters.base import (
    SPLITTERS,
    Holders,
    Shares,
    Task,
    divide,
    read_arguments,
    register_splitter,
)
from federatedscope_ggeur.data.splitters.skew import lds_matrix
from federatedscope_ggeur.settings import import_modules

import_modules(__name__, __path__)
