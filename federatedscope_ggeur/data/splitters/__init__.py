"""Splitters (``data.splitter``). All modules of this folder are imported."""

from federatedscope_ggeur.settings import import_modules

from .base import (
    SPLITTERS,
    Holders,
    Shares,
    Task,
    divide,
    read_arguments,
    register_splitter,
)
from .skew import lds_matrix

import_modules(__name__, __path__)
