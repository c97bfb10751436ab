"""The embedding cache: features of images, kept by what they depend on."""

from federatedscope_ggeur.data.cache.entry import Entry, content_key, entry_file
from federatedscope_ggeur.data.cache.files import DamagedError
from federatedscope_ggeur.data.cache.index import (
    DomainRecord,
    Record,
    Request,
    SplitRecord,
    all_records,
    entry_of,
    find_carried,
    read_record,
    record_path,
    write_record,
)

__all__ = [
    "DamagedError",
    "DomainRecord",
    "Entry",
    "Record",
    "Request",
    "SplitRecord",
    "all_records",
    "content_key",
    "entry_file",
    "entry_of",
    "find_carried",
    "read_record",
    "record_path",
    "write_record",
]
