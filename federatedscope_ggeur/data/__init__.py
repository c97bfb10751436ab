"""Embeddings of several domains: read them, split them, and divide them among clients.

All modules of this folder are imported, and register their readers.
"""

from federatedscope_ggeur.data.centralise import centralise
from federatedscope_ggeur.data.clients import (
    ClientData,
    ClientRange,
    class_counts,
    held_lazily,
    sizes_of,
)
from federatedscope_ggeur.data.digits import read_digits_quickstart
from federatedscope_ggeur.data.embeddings import DataSet, Domain, Embeddings
from federatedscope_ggeur.data.encoded import Encoded
from federatedscope_ggeur.data.encoders import (
    ENCODERS,
    Encoder,
    EncoderSettings,
    build_encoder,
    check_encoder,
    pick_device,
    register_encoder,
)
from federatedscope_ggeur.data.encoding import EncodingSettings, Pending
from federatedscope_ggeur.data.expected import Expected
from federatedscope_ggeur.data.extraction import ExtractionSettings, extract
from federatedscope_ggeur.data.fingerprint import fingerprint
from federatedscope_ggeur.data.folder import read_embeddings_folder
from federatedscope_ggeur.data.images import IMAGE_READERS, register_image_reader
from federatedscope_ggeur.data.partition import FederatedData, partition
from federatedscope_ggeur.data.registry import (
    READERS,
    SUFFIX,
    embed_data,
    find_pending,
    find_reader,
    is_image_type,
    load_data,
    register_reader,
)
from federatedscope_ggeur.data.rows import ROW_FILES, Given, Rows
from federatedscope_ggeur.data.split import check_splits, validation_share
from federatedscope_ggeur.data.splitters import (
    SPLITTERS,
    Holders,
    Shares,
    Task,
    lds_matrix,
    read_arguments,
    register_splitter,
)
from federatedscope_ggeur.data.text import TextFeatures
from federatedscope_ggeur.data.transforms import (
    NO_TRANSFORM,
    TRANSFORMS,
    named_transform,
    transform_data,
    transform_rows,
)
from federatedscope_ggeur.settings import import_modules

import_modules(__name__, __path__)
