"""Compute features of images. Worker processes decode while the encoder computes."""

from __future__ import annotations

import hashlib
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from federatedscope_ggeur.data.encoders import Encoder
from federatedscope_ggeur.data.images.base import Images
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.machine import start_method, torch_threads, usable_cores

_MOST_WORKERS = 16


class UnreadableError(DataError):
    """An image that cannot be loaded."""


@dataclass(frozen=True)
class ExtractionSettings:
    """The speed settings of embedding. Features do not depend on them, up to rounding.

    Parameters
    ----------
    batch_size : int
        The number of images that the encoder computes at a time.
    num_workers : int or None
        The number of processes that decode images. 0 means that this process decodes.
        None means one process for each CPU, at most 16.
    num_threads : int or None
        The number of torch threads of the encoder on a CPU. None means one for each
        CPU.
    """

    batch_size: int = 64
    num_workers: int | None = None
    num_threads: int | None = None


def extract(
    encoder: Encoder, images: Images, settings: ExtractionSettings, first: int = 0
) -> Iterator[Tensor]:
    """Yield features of `images` from row `first` on, in order, batch by batch.

    The same images give the same features up to rounding, whatever `settings` and
    `first` are. The bits are the same on the same device if ``batch_size`` is the same
    and `first` is a multiple of it.

    Yields
    ------
    Tensor of shape [b, D], of the encoder's dtype, on the CPU
        The features. b is ``batch_size``, except in the last batch.

    Raises
    ------
    UnreadableError
        An image cannot be read.
    DataError
        The features of an image are not finite. The error names the image's key.
    ConfigError
        The features have another length than the encoder's `dim`, or a worker process
        died.
    """
    pinned = encoder.device.type == "cuda"
    batches = _loaded(
        images, first, encoder.preprocess, torch.stack, settings, pin_memory=pinned
    )
    waiting: tuple[int, Tensor] | None = None
    with torch_threads(settings.num_threads or usable_cores()):
        for batch in batches:
            features = encoder.encode(batch)
            # A GPU computes this batch while the one before is taken from it.
            if waiting is not None:
                yield _checked(*waiting, encoder, images)
            waiting = first, features
            first += len(batch)
        if waiting is not None:
            yield _checked(*waiting, encoder, images)


def hash_contents(images: Images, settings: ExtractionSettings) -> tuple[str, ...]:
    """SHA-256 of every decoded image, over its size and its pixels.

    Raises
    ------
    UnreadableError
        An image cannot be read.
    """
    batches = _loaded(images, 0, _digest, list, settings)
    return tuple(digest for batch in batches for digest in batch)


def unreadable_rows(images: Images, settings: ExtractionSettings) -> dict[int, str]:
    """The row numbers of images that cannot be loaded, each with the reason."""
    found, first = {}, 0
    for batch in _loaded(images, 0, _nothing, list, settings, fails=False):
        for row, sample in enumerate(batch, first):
            if isinstance(sample, _Failure):
                found[row] = sample.message
        first += len(batch)
    return found


def _nothing(image: Image.Image) -> None:
    """Drop an image that could be loaded."""


def _digest(image: Image.Image) -> str:
    size = f"{image.mode} {image.size};".encode()
    return hashlib.sha256(size + image.tobytes()).hexdigest()


def _checked(first: int, features: Tensor, encoder: Encoder, images: Images) -> Tensor:
    features = features.cpu()
    if features.ndim != 2 or features.shape[1] != encoder.dim:
        raise ConfigError(
            f"the encoder {encoder.name} returned features of shape "
            f"{list(features.shape)}, but must return shape [B, {encoder.dim}]"
        )
    bad = ~torch.isfinite(features).all(dim=1)
    if bad.any():
        key = images.keys[first + int(bad.nonzero()[0, 0])]
        raise DataError(
            f"the features of image '{key}' are not finite with the encoder "
            f"{encoder.name}; with fp16, set ggeur.encoder.precision bf16 or fp32"
        )
    return features


class _Rows(Dataset):
    """The images from row `first` on, converted. An error becomes a `_Failure`."""

    def __init__(self, images: Images, first: int, convert: Callable):
        self.images, self.first, self.convert = images, first, convert

    def __len__(self) -> int:
        return len(self.images) - self.first

    def __getitem__(self, index: int):
        row = self.first + index
        try:
            return self.convert(self.images.load(row))
        except DataError as error:
            return _Failure(str(error))
        except Exception as error:  # decoders raise many kinds
            key = self.images.keys[row]
            return _Failure(f"image '{key}': {type(error).__name__}: {error}")


@dataclass(frozen=True)
class _Failure:
    """The message of an error in a worker process.

    As an exception, DataLoader would add its own text and a traceback to the message.
    """

    message: str


def _merged(samples: list, merge: Callable, fails: bool):
    """Merge samples into a batch. If `fails`, a failure in them is returned instead."""
    failures = [sample for sample in samples if isinstance(sample, _Failure)]
    return failures[0] if failures and fails else merge(samples)


def _loaded(
    images: Images,
    first: int,
    convert: Callable,
    merge: Callable,
    settings: ExtractionSettings,
    pin_memory: bool = False,
    fails: bool = True,
) -> Iterator:
    """Yield batches of rows, in order: loaded, converted and merged.

    An unreadable image is an error if `fails`. Otherwise the batch holds a `_Failure`
    in its place.
    """
    rows = _Rows(images, first, convert)
    workers = _workers(rows, settings)
    prepare = getattr(images.load, "prepare", None)
    if prepare is not None:
        prepare()  # once here, so that no forked process has to do it
    loader = DataLoader(
        rows,
        batch_size=settings.batch_size,
        num_workers=workers,
        collate_fn=partial(_merged, merge=merge, fails=fails),
        pin_memory=pin_memory,
        worker_init_fn=_ignore_interrupts if workers else None,
        multiprocessing_context=start_method() if workers else None,
        generator=torch.Generator(),  # draws nothing from the global generator
    )
    try:
        for batch in loader:
            if isinstance(batch, _Failure):
                raise UnreadableError(batch.message)
            yield batch
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise ConfigError(
            f"a process that decodes images died ({error}). It may have lacked memory, "
            "or shared memory (in a container: --shm-size); set a smaller "
            "ggeur.encoder.batch_size, or ggeur.encoder.num_workers 0"
        ) from error


def _ignore_interrupts(worker: int) -> None:
    """Ignore Ctrl-C in a worker process.

    Ctrl-C reaches all processes, and the main process ends the others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _workers(rows: _Rows, settings: ExtractionSettings) -> int:
    asked = settings.num_workers
    batches = -(-len(rows) // settings.batch_size)
    workers = min(usable_cores(), _MOST_WORKERS) if asked is None else asked
    workers = min(workers, batches)
    if workers and start_method() == "spawn" and asked is None:
        try:
            pickle.dumps(rows)
        except Exception:  # pickle cannot hold it, e.g. a closure or an open file
            return 0
    return workers
