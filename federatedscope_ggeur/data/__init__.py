"""Data: embeddings of several domains, read, split and divided among clients."""

from federatedscope_ggeur.data.centralise import centralise
from federatedscope_ggeur.data.digits import read_digits_quickstart
from federatedscope_ggeur.data.embeddings import DataSet, Domain, Embeddings
from federatedscope_ggeur.data.encoded import Encoded
from federatedscope_ggeur.data.encoders import (
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
from federatedscope_ggeur.data.partition import (
    ClientData,
    FederatedData,
    partition,
)
from federatedscope_ggeur.data.registry import (
    SUFFIX,
    check_data_type,
    embed_data,
    is_image_type,
    load_data,
    register_reader,
)
from federatedscope_ggeur.data.split import check_splits
from federatedscope_ggeur.data.splitters import check_splitter, lds_matrix

__all__ = [
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
    "build_encoder",
    "centralise",
    "check_data_type",
    "check_encoder",
    "check_splits",
    "check_splitter",
    "embed_data",
    "extract",
    "is_image_type",
    "lds_matrix",
    "load_data",
    "partition",
    "pick_device",
    "read_digits_quickstart",
    "read_embeddings_folder",
    "register_encoder",
    "register_reader",
]
