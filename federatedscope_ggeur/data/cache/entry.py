"""One entry of the embedding cache: the features of one split of one domain."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.lock import locked
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.progress import Progress

from ..embeddings import Embeddings
from ..encoders import Encoder, identity_hash
from ..extraction import ExtractionSettings, extract
from ..images.base import Images
from ..processes import Processes
from .files import DamagedError, cannot_write, read_tensors, write_tensors

logger = get_logger(__name__)

_FLOAT16_LARGEST = torch.finfo(torch.float16).max


#: A part is written after this many rows, or after this many seconds.
PART_ROWS, PART_SECONDS = 2048, 60.0


def content_key(
    identity: Mapping[str, object],
    where: Sequence[str],
    images: Images,
    stamps: Sequence[str],
    float16: bool,
) -> str:
    """The key of an entry: a SHA-256 of everything that the features depend on.

    Parameters
    ----------
    identity : mapping
        The identity of the encoder.
    where : [data set, domain, split]
    images : Images
    stamps : sequence of str
        The stamps of the images, or hashes of their contents.
    float16 : bool
        Whether the features are stored in half precision.
    """
    labels = [int(label) for label in images.labels]
    parts = [identity_hash(identity), *where, images.keys, stamps, labels, float16]
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
        # The stored type is not checked.
        parts = Parts(self.path.with_suffix(".parts"), self.key, torch.float32)
        return len(images) - parts.rows

    def fill(
        self,
        images: Images,
        encoder: Encoder,
        settings: ExtractionSettings,
        float16: bool,
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
            found = self.read_if_whole()
            if found is not None:
                return Extracted(found, 0, 0.0)
            dtype = torch.float16 if float16 else encoder.dtype
            parts = Parts(self.path.with_suffix(".parts"), self.key, dtype)
            before, started = parts.rows, time.perf_counter()
            if len(images):
                self._extract(parts, images, encoder, settings, processes)
                features = parts.whole()
            else:
                features = torch.empty(0, encoder.dim, dtype=dtype)
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
        batches = extract(encoder, images, settings, done, processes)
        with progress, closing(batches):
            try:
                for features in batches:
                    _check_range(features, parts, self.what)
                    parts.add(features)
                    progress.step(len(features))
            finally:
                parts.flush()


@dataclass(frozen=True)
class Extracted:
    """Features, of which a call has extracted `rows` rows in `seconds` seconds."""

    features: Embeddings
    rows: int
    seconds: float


def _check_range(features: Tensor, parts: Parts, what: str) -> None:
    if parts.dtype == torch.float16 and (features.abs() > _FLOAT16_LARGEST).any():
        raise ConfigError(
            f"{what} has features above {_FLOAT16_LARGEST:g}, which are too large for "
            "half precision; set ggeur.encoder.float16_cache False"
        )


class Parts:
    """The features of an unfinished entry, in parts of consecutive rows.

    Parameters
    ----------
    folder : Path
        The folder of the parts, with one file for each. It belongs to this entry alone.
    key : str
        The key of the entry. Parts of another entry are not used.
    dtype : torch.dtype
        The type that features are stored in.
    """

    def __init__(self, folder: Path, key: str, dtype: torch.dtype):
        self._folder, self._key, self.dtype = folder, key, dtype
        self._waiting: list[Tensor] = []
        self._written = time.monotonic()
        self.rows = sum(len(part) for part in self._read())

    def add(self, features: Tensor) -> None:
        """Append rows. They are written once enough rows wait, or by `flush`."""
        self._waiting.append(features.to(self.dtype))
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
