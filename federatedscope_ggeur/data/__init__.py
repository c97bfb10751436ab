"""Data: embeddings of several domains, read, split and divided among clients.

Every module of this folder is imported and registers its readers.
"""

from importlib import import_module
from pkgutil import iter_modules

from federatedscope_ggeur.data.centralise import centralise
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
from federatedscope_ggeur.data.encoding import EncodingSettings
from federatedscope_ggeur.data.extraction import ExtractionSettings, extract
from federatedscope_ggeur.data.folder import read_embeddings_folder
from federatedscope_ggeur.data.images import IMAGE_READERS, register_image_reader
from federatedscope_ggeur.data.partition import (
    ClientData,
    FederatedData,
    partition,
)
from federatedscope_ggeur.data.registry import (
    READERS,
    SUFFIX,
    check_data_type,
    embed_data,
    find_reader,
    is_image_type,
    load_data,
    register_reader,
)
from federatedscope_ggeur.data.split import check_splits
from federatedscope_ggeur.data.splitters import (
    SPLITTERS,
    Task,
    check_splitter,
    lds_matrix,
    register_splitter,
)

for _name in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_name}")

__all__ = [
    "ENCODERS",
    "IMAGE_READERS",
    "READERS",
    "SPLITTERS",
    "SUFFIX",
    "ClientData",
    "DataSet",
    "Domain",
    "Embeddings",
    "Encoded",
    "Encoder",
    "EncoderSettings",
    "EncodingSettings",
    "ExtractionSettings",
    "FederatedData",
    "Task",
    "build_encoder",
    "centralise",
    "check_data_type",
    "check_encoder",
    "check_splits",
    "check_splitter",
    "embed_data",
    "extract",
    "find_reader",
    "is_image_type",
    "lds_matrix",
    "load_data",
    "partition",
    "pick_device",
    "read_digits_quickstart",
    "read_embeddings_folder",
    "register_encoder",
    "register_image_reader",
    "register_reader",
    "register_splitter",
]
