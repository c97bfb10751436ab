"""Embeddings of several domains: read them, split them, and divide them among clients.

All modules of this folder are imported, and register their readers.
"""

from federatedscope_ggeur.settings import import_modules

from .clients import ClientData, ClientRange, class_counts, held_lazily, sizes_of
from .digits import read_digits_quickstart
from .embeddings import DataSet, Domain, Embeddings
from .encoders import (
    ENCODERS,
    Encoder,
    EncoderSettings,
    build_encoder,
    check_encoder,
    pick_device,
    register_encoder,
)
from .encoding import Encoded, EncodingSettings, Pending
from .extraction import ExtractionSettings, extract
from .folder import read_embeddings_folder
from .images import IMAGE_READERS, register_image_reader
from .partition import FederatedData, centralise, fingerprint, partition, pool_hash
from .registry import (
    READERS,
    SUFFIX,
    embed_data,
    find_pending,
    find_reader,
    is_image_type,
    load_data,
    register_reader,
)
from .rows import Given, Rows, is_row_file
from .split import check_splits, validation_share
from .splitters import (
    SPLITTERS,
    Holders,
    Shares,
    Task,
    lds_matrix,
    read_arguments,
    register_splitter,
)
from .transforms import (
    NO_TRANSFORM,
    TRANSFORMS,
    Expected,
    named_transform,
    transform_data,
    transform_rows,
)

import_modules(__name__, __path__)
