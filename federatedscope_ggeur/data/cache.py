"""The embedding cache, which finds features by everything that they depend on.

An entry has the features of one split of one domain. Each file is whole or absent, and
has a checksum. Records of the data sets make a cache usable without the images.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.files import safetensors_header, write_atomically
from federatedscope_ggeur.lock import locked
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.progress import Progress

from .embeddings import Embeddings
from .encoders import Encoder, EncoderSettings, identity_hash
from .extraction import ExtractionSettings, extract
from .images.layout import Images
from .processes import Processes

VERSION = 1
_HEADER = "ggeur_embeddings"


class DamagedError(Exception):
    """A cache file was changed after it was written, or is not the expected file."""


def write_in_cache(path: Path, data: bytes) -> None:
    """Write `data` to `path` in the cache, whole or not at all. Make missing folders.

    Raises
    ------
    ConfigError
        The file cannot be written. The error says which setting to change.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise cannot_write(path, error) from error
    except ConfigError as error:
        raise cannot_write(path, error.__cause__) from error


def cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot write '{path}' in the embedding cache: {error.strerror or error}; set "
        "ggeur.encoder.cache to a writable folder with enough room"
    )


def write_tensors(path: Path, tensors: dict[str, Tensor], header: dict) -> None:
    """Write tensors and a header of plain values to a file, with one checksum."""
    digest = _digest(tensors, header)
    text = json.dumps({"version": VERSION, "sha256": digest, "header": header})
    write_in_cache(path, save(tensors, {_HEADER: text}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict]:
    """Read the tensors and the header of a file.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    DamagedError
        The file was cut short, changed, or written by another version.
    """
    # Not mapped into memory: a later change of the file must not change the tensors.
    try:
        data = path.read_bytes()
        tensors = load(data)
        written = json.loads(safetensors_header(data)["__metadata__"][_HEADER])
        version, digest, header = (written[k] for k in ("version", "sha256", "header"))
    except FileNotFoundError:
        raise
    # torch raises RuntimeError for a file that was cut short.
    except (
        SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OSError
    ) as error:  # fmt: skip
        raise DamagedError(
            f"the file cannot be read: {type(error).__name__}"
        ) from error
    if version != VERSION:
        raise DamagedError(f"the file has version {version}, not {VERSION}")
    if _digest(tensors, header) != digest:
        raise DamagedError("the checksum of the file is wrong")
    return tensors, header


def _digest(tensors: dict[str, Tensor], header: dict) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


logger = get_logger(__name__)


#: A part is written after this many rows, or after this many seconds.
PART_ROWS, PART_SECONDS = 2048, 60.0


def content_key(
    identity: Mapping[str, object], where: Sequence[str], images: Images
) -> str:
    """The key of an entry: a SHA-256 of everything that the features depend on.

    Parameters
    ----------
    identity : mapping
        The identity of the encoder.
    where : [data set, domain, split]
    images : Images
    """
    labels = [int(label) for label in images.labels]
    parts = [
        identity_hash(identity),
        *where,
        images.keys,
        images.stamps,
        labels,
        False,  # as keys of older releases have it
    ]
    if images.users is not None:
        parts.append(images.users.tolist())
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def entry_file(identity: Mapping[str, object], where: Sequence[str], key: str) -> str:
    """The path of an entry inside the cache folder, with slashes."""
    data, domain, split = (_slug(part) for part in where)
    encoder = f"{_slug(str(identity['encoder']))}-{identity_hash(identity)[:12]}"
    return f"{data}/{encoder}/{domain}-{split}-{key[:16]}.safetensors"


def _slug(text: str) -> str:
    """`text` with only characters that every file system allows.

    Several domains may have the same slug. Their keys differ.
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:40]


@dataclass(frozen=True)
class Entry:
    """One entry of a cache: the features of one split of one domain.

    Parameters
    ----------
    path : Path
    key : str
        The result of `content_key`.
    domain, split : str
    """

    path: Path
    key: str
    domain: str
    split: str

    @property
    def what(self) -> str:
        return f"{self.domain} ({self.split})"

    def read(self) -> Embeddings:
        """Read the features from the cache, and check them.

        Raises
        ------
        FileNotFoundError
            The cache has no such entry.
        DamagedError
            The file was changed, or belongs to other images or another encoder.
        """
        tensors, header = read_tensors(self.path)
        if header.get("key") != self.key:
            raise DamagedError("the file belongs to other images or another encoder")
        features, shape = tensors["features"], header.get("image_shape")
        return Embeddings(
            features.float() if shape is None else features,
            tensors["labels"],
            self.domain,
            shape if shape is None else tuple(shape),
            tensors.get("users"),
        )

    def read_if_whole(self) -> Embeddings | None:
        """Read the features; None if the cache lacks them or its file is damaged.

        A damaged file is logged as a warning.
        """
        try:
            return self.read()
        except FileNotFoundError:
            return None
        except DamagedError as error:
            logger.warning(
                "the cache file %s is damaged (%s) and is made again", self.path, error
            )
            return None

    def missing(self, images: Images) -> int:
        """How many of `images` the cache lacks.

        Images that are in the parts of an unfinished entry are not counted.
        """
        if self.read_if_whole() is not None:
            return 0
        parts = Parts(self.path.with_suffix(".parts"), self.key)
        return len(images) - parts.rows

    def fill(
        self,
        images: Images,
        encoder: Encoder,
        settings: ExtractionSettings,
        processes: Processes | None = None,
    ) -> Extracted:
        """Extract the features, or the part that an interrupted call did not extract.

        If two processes want the same entry, the second one waits and then reads.
        `processes` decode; by default, some that are started for it.

        Raises
        ------
        ConfigError, DataError
            The errors of `extract`. Or the cache cannot be written. The next call uses
            everything that was extracted before the error.
        """
        what = f"embedding {self.what}"
        with locked(self.path.with_suffix(".lock"), what, cannot_write):
            if (kept := self.read_if_whole()) is not None:
                return Extracted(kept, 0, 0.0)
            parts = Parts(self.path.with_suffix(".parts"), self.key)
            before, started = parts.rows, time.perf_counter()
            if len(images):
                self._extract(parts, images, encoder, settings, processes)
                features = parts.whole()
            else:
                features = torch.empty(0, encoder.dim, dtype=encoder.dtype)
            labels = torch.tensor(images.labels, dtype=torch.int64)
            tensors = {"features": features, "labels": labels}
            if images.users is not None:
                tensors["users"] = torch.tensor(images.users, dtype=torch.int64)
            header: dict[str, object] = {"key": self.key}
            if encoder.image_shape is not None:
                header["image_shape"] = list(encoder.image_shape)
            write_tensors(self.path, tensors, header)
            parts.remove()
            seconds = time.perf_counter() - started
            return Extracted(self.read(), len(images) - before, seconds)

    def _extract(
        self,
        parts: Parts,
        images: Images,
        encoder: Encoder,
        settings: ExtractionSettings,
        processes: Processes | None,
    ) -> None:
        done, total = parts.rows, len(images)
        logger.info("embedding %d images of %s", total, self.what)
        if done:
            logger.info("%d of %d images are in the cache already", done, total)
        progress = Progress(total, "image", self.what, done)
        what = f"'{self.domain}' ({self.split})"
        batches = extract(encoder, images, settings, done, processes, what)
        with progress, closing(batches):
            try:
                for features in batches:
                    parts.add(features.to(encoder.dtype))
                    progress.step(len(features))
            finally:
                parts.flush()


@dataclass(frozen=True)
class Extracted:
    """Features, of which a call has extracted `rows` rows in `seconds` seconds."""

    features: Embeddings
    rows: int
    seconds: float


class Parts:
    """The features of an unfinished entry, in parts of consecutive rows.

    Parameters
    ----------
    folder : Path
        The folder of the parts, with one file for each. It belongs to this entry alone.
    key : str
        The key of the entry. Parts of another entry are not used.
    """

    def __init__(self, folder: Path, key: str):
        self._folder, self._key = folder, key
        self._waiting: list[Tensor] = []
        self._written = time.monotonic()
        self.rows = sum(len(part) for part in self._read())

    def add(self, features: Tensor) -> None:
        """Append rows. They are written once enough rows wait, or by `flush`."""
        self._waiting.append(features)
        waiting = sum(map(len, self._waiting))
        if waiting >= PART_ROWS or time.monotonic() - self._written >= PART_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write all rows that wait."""
        if self._waiting:
            part = torch.cat(self._waiting)
            path = self._folder / f"{self.rows:09d}.safetensors"
            write_tensors(path, {"features": part}, {"key": self._key})
            self.rows += len(part)
            self._waiting = []
        self._written = time.monotonic()

    def whole(self) -> Tensor:
        """All rows [n, D] that were written. There must be at least one."""
        return torch.cat(list(self._read()))

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self) -> Iterator[Tensor]:
        """Yield the parts in order, up to the first one that is missing or damaged."""
        row = 0
        while True:
            path = self._folder / f"{row:09d}.safetensors"
            try:
                tensors, header = read_tensors(path)
                if header.get("key") != self._key:
                    raise DamagedError("the file belongs to another entry")
            except FileNotFoundError:
                return
            except DamagedError as error:
                logger.warning(
                    "the cache file %s is damaged (%s); its rows and all later rows "
                    "are made again",
                    path,
                    error,
                )
                with contextlib.suppress(OSError):
                    path.unlink()
                return
            row += len(tensors["features"])
            yield tensors["features"]


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
class RecordQuery:
    """The settings of a run that find a data set's record.

    Parameters
    ----------
    data_type : str
    root : str
        ``data.root``. In a copied cache, a record with another root is found, too.
    encoder : EncoderSettings
        The encoder's settings, with its defaults filled in.
    options : mapping
        The reader's own settings.
    """

    data_type: str
    root: str
    encoder: EncoderSettings
    options: Mapping[str, object] = field(default_factory=dict)

    def without_root(self) -> dict:
        """The request as plain values that do not depend on the machine."""
        # The last two were settings of older releases.
        former = {"float16": False, "hash_files": False}
        plain = {**asdict(self), "root": "", **former}
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
        The result of `RecordQuery.without_root`.
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


def record_path(folder: Path, request: RecordQuery) -> Path:
    """The file of a request's record. Different requests have different files."""
    text = json.dumps([request.without_root(), request.root], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    reader = request.data_type.partition("@")[0]
    return folder / _FOLDER / f"{reader}-{digest[:16]}.json"


def write_record(folder: Path, request: RecordQuery, record: Record) -> None:
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
    folder: Path, request: RecordQuery, defaults: Mapping[str, object]
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
