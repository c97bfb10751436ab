"""Records of the data sets in a cache. They make a cache usable without the images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath

from federatedscope_ggeur.printable import get_logger

from ..encoders import EncoderSettings
from .files import VERSION, write_in_cache

logger = get_logger(__name__)

_FOLDER = "index"


@dataclass(frozen=True)
class SplitRecord:
    """One split of one domain: its entry's path in the cache, its key and its rows."""

    file: str
    key: str
    rows: int


@dataclass(frozen=True)
class DomainRecord:
    """One domain of a data set. `test` is None if the data came without a split."""

    name: str
    train: SplitRecord
    test: SplitRecord | None


@dataclass(frozen=True)
class Request:
    """The settings of a run that find a data set's record.

    Parameters
    ----------
    data_type : str
    root : str
        ``data.root``. In a copied cache, a record with another root is found, too.
    encoder : EncoderSettings
        The encoder's settings, with its defaults filled in.
    float16 : bool
    hash_files : bool
    options : mapping
        The reader's own settings.
    """

    data_type: str
    root: str
    encoder: EncoderSettings
    float16: bool
    hash_files: bool
    options: Mapping[str, object] = field(default_factory=dict)

    def without_root(self) -> dict:
        """The request as plain values that do not depend on the machine."""
        plain = {**asdict(self), "root": ""}
        encoder = plain["encoder"]
        encoder["pretrained"] = PurePath(encoder["pretrained"]).name
        for part in (plain, encoder):
            # Old records, which have less, must be found, too.
            if not part["options"]:
                del part["options"]
        for name in ("decode", "grey_bits"):
            if encoder[name] == getattr(EncoderSettings, name):
                del encoder[name]
        return plain


@dataclass(frozen=True)
class Record:
    """The record of a whole data set in a cache.

    Parameters
    ----------
    request : mapping
        The result of `Request.without_root`.
    root : str
        The folder of the images when they were embedded.
    name : str
        The name of the data set.
    class_names : tuple of str
    domains : tuple of DomainRecord
    dim : int
    encoder : str
        The encoder's name.
    identity : mapping
        The encoder's identity.
    stamp : mapping or None
        The encoder's stamp; None if it has none.
    """

    request: Mapping[str, object]
    root: str
    name: str
    class_names: tuple[str, ...]
    domains: tuple[DomainRecord, ...]
    dim: int
    encoder: str
    identity: Mapping[str, object]
    stamp: Mapping[str, str | None] | None

    def files(self) -> dict[tuple[str, str], str]:
        """The paths of all entries in the cache, by (domain, split)."""
        return {
            (domain.name, split): part.file
            for domain in self.domains
            for split, part in (("train", domain.train), ("test", domain.test))
            if part is not None
        }


def record_path(folder: Path, request: Request) -> Path:
    """The file of a request's record. Different requests have different files."""
    text = json.dumps([request.without_root(), request.root], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return (
        folder / _FOLDER / f"{request.data_type.partition('@')[0]}-{digest[:16]}.json"
    )


def write_record(folder: Path, request: Request, record: Record) -> None:
    """Write the record of a request into a cache."""
    content = {"version": VERSION, **asdict(record)}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    write_in_cache(record_path(folder, request), text.encode())


def read_record(path: Path) -> Record | None:
    """Read the record in a file; None if there is no usable record."""
    try:
        content = json.loads(path.read_text("utf-8"))
        if content.pop("version") != VERSION:
            return None
        record = Record(**content)
        return replace(
            record,
            class_names=tuple(record.class_names),
            domains=tuple(_domain(domain) for domain in record.domains),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning(
            "the cache's record %s is damaged (%s) and is not used", path, error
        )
        return None


def _domain(content: dict) -> DomainRecord:
    train, test = content["train"], content["test"]
    for part in (train, test or train):
        if ".." in PurePath(part["file"]).parts or PurePath(part["file"]).is_absolute():
            raise ValueError(f"the path '{part['file']}' leads out of the cache")
    return DomainRecord(
        content["name"],
        SplitRecord(**train),
        None if test is None else SplitRecord(**test),
    )


def find_carried(
    folder: Path, request: Request, defaults: Mapping[str, object]
) -> list[Record]:
    """The records that match a request.

    If a record has the request's own root, only that one is returned. Otherwise all
    that differ only in the root are. A setting that an old record lacks counts as its
    default.
    """
    own = read_record(record_path(folder, request))
    if own is not None:
        return [own]
    wanted = request.without_root()
    return [
        record
        for record in all_records(folder)
        if _with_options(record.request, defaults) == _with_options(wanted, defaults)
    ]


def _with_options(request: Mapping[str, object], defaults: Mapping) -> dict:
    return {**request, "options": {**defaults, **request.get("options", {})}}


def all_records(folder: Path) -> list[Record]:
    """All records of a cache, in the order of their file names."""
    paths = sorted((folder / _FOLDER).glob("*.json"))
    return [record for path in paths if (record := read_record(path)) is not None]
