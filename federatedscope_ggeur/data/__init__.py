"""Data: embeddings of several domains, read, split and divided among clients."""

from federatedscope_ggeur.data.digits import read_digits_quickstart
from federatedscope_ggeur.data.embeddings import DataSet, Domain, Embeddings
from federatedscope_ggeur.data.folder import read_embeddings_folder
from federatedscope_ggeur.data.partition import (
    ClientData,
    FederatedData,
    partition,
)
from federatedscope_ggeur.data.registry import (
    SUFFIX,
    check_data_type,
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
    "FederatedData",
    "check_data_type",
    "check_splits",
    "check_splitter",
    "lds_matrix",
    "load_data",
    "partition",
    "read_digits_quickstart",
    "read_embeddings_folder",
    "register_reader",
]
