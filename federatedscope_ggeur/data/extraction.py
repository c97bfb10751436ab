"""Compute features of images. Worker processes decode while the encoder computes.

Find images that cannot be loaded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, DataError, setting
from federatedscope_ggeur.machine import start_method, torch_threads, usable_cores
from federatedscope_ggeur.printable import Lines, get_logger
from federatedscope_ggeur.settings import (
    Section,
    check_returned,
    key,
    where_of,
    whole,
)

from .decoding import ImagePreparation, decoded
from .encoders import Encoder
from .images.files import largest_grey
from .images.layout import Images, Loader, shown
from .processes import ProcessDied, Processes, ahead, pickled

T = TypeVar("T")

_MOST_WORKERS = 16
#: Images that a process prepares at a time, at most.
_CHUNK = 16
#: Batches that are ready before the encoder takes them.
_AHEAD = 2


@dataclass(frozen=True)
class Unreadable:
    """Stands for an image that cannot be loaded, with the reason."""

    message: str


class ExtractionSettings(Section):
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

    PREFIX = "encoder."

    batch_size: int = key(64, "How many images the encoder embeds at a time.", whole(1))
    num_workers: int | None = key(
        None,
        "Processes that decode images; 0: only the main process; -1: one for each "
        "CPU, at most 16.",
        whole(0, not_set_allowed=True, maximum=1024),
    )
    num_threads: int | None = key(
        None,
        "torch threads of the encoder on a CPU; -1: one for each CPU.",
        whole(1, not_set_allowed=True, maximum=1024),
    )


def extract(
    encoder: Encoder,
    images: Images,
    settings: ExtractionSettings,
    first: int = 0,
    processes: Processes | None = None,
    what: str = "",
) -> Iterator[Tensor]:
    """Yield features of `images` from row `first` on, in order, batch by batch.

    The same images give the same features up to rounding, whatever `settings` and
    `first` are. The bits are the same on the same device if ``batch_size`` is the same
    and `first` is a multiple of it. `processes` decode; by default, some of its own.
    `what` names the images for messages.

    Yields
    ------
    Tensor of shape [b, D], of the encoder's dtype, on the CPU
        The features. b is ``batch_size``, except in the last batch.

    Raises
    ------
    DataError
        Images cannot be read. The error counts them; none of the images behind the
        first one is embedded. Or the features of an image are not finite. The error
        names the image's key.
    ConfigError
        The features have another length than the encoder's `dim`, or a worker process
        died.
    PluginError
        The encoder returned no tensor.
    """
    batches = prepared(encoder, images, settings, first, processes)
    waiting: deque[tuple[int, Callable[[], Tensor]]] = deque()
    bad: dict[int, str] = {}
    row = first
    with torch_threads(settings.num_threads or usable_cores()), closing(batches):
        for batch in batches:
            if isinstance(batch, list):
                numbered = enumerate(batch, row)
                bad |= {k: b.message for k, b in numbered if isinstance(b, Unreadable)}
            elif not bad:
                features = encoder.encode(batch)
                whose = f"encode of the encoder {encoder.name}"
                check_returned(whose, encoder.encode, features, Tensor)
                waiting.append((row, _fetched(features)))
            row += len(batch)
            # A GPU computes this batch while the one before is taken from it.
            if len(waiting) > 1:
                yield _checked(*waiting.popleft(), encoder, images)
        if waiting:
            yield _checked(*waiting.popleft(), encoder, images)
    if bad:
        raise _unreadable(images, what, bad)


def prepared(
    encoder: Encoder,
    images: Images,
    settings: ExtractionSettings,
    first: int = 0,
    processes: Processes | None = None,
) -> Generator[Tensor | list, None, None]:
    """Yield batches of images for `encoder.encode`, from row `first` on, in order.

    A batch with images that cannot be loaded is a list: an `Unreadable` stands in the
    place of each. The rest is as for `extract`.
    """
    on_gpu = encoder.decode == "gpu"
    chunk = _Chunk(images.load, images.keys, ImagePreparation.of(encoder))
    by_pillow = replace(chunk, convert=lambda load, row: encoder.preprocess(load(row)))
    join = list if on_gpu else partial(_joined, encoder.device)
    with closing(_loaded(chunk, join, settings, first, processes)) as batches:
        for batch in batches:
            if on_gpu:
                again = partial(_again, by_pillow, first)
                batch = _joined(encoder.device, decoded(encoder, batch, again))
            yield batch
            first += len(batch)


def _again(chunk: _Chunk, first: int, row: int) -> Tensor | Unreadable:
    return chunk.converted(first + row)


def _joined(device: torch.device, samples: list) -> Tensor | list:
    """One batch of `samples`, in memory from which a GPU takes it without a wait.

    It is a list if some images cannot be loaded.
    """
    if any(isinstance(sample, Unreadable) for sample in samples):
        return samples
    if any(sample.device.type == "cuda" for sample in samples):
        return torch.stack([sample.to(device) for sample in samples])
    size = len(samples), *samples[0].shape
    on_gpu = device.type == "cuda"
    whole = torch.empty(size, dtype=samples[0].dtype, pin_memory=on_gpu)
    return torch.stack(samples, out=whole)


def _fetched(features: Tensor) -> Callable[[], Tensor]:
    """Begin to copy features to the CPU. The function returns them once they are
    there."""
    if features.device.type != "cuda":
        return lambda: features
    here = torch.empty(features.shape, dtype=features.dtype, pin_memory=True)
    here.copy_(features, non_blocking=True)
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(features.device))

    def fetch() -> Tensor:
        done.synchronize()
        return here.clone()

    return fetch


def _checked(
    first: int, fetch: Callable[[], Tensor], encoder: Encoder, images: Images
) -> Tensor:
    features = fetch()
    if features.ndim != 2 or features.shape[1] != encoder.dim:
        raise ConfigError(
            f"the encoder {encoder.name}{where_of(encoder.encode)} returned features "
            f"of shape {list(features.shape)}, but must return shape "
            f"[B, {encoder.dim}]"
        )
    bad = ~torch.isfinite(features).all(dim=1)
    if bad.any():
        key = images.keys[first + int(bad.nonzero()[0, 0])]
        raise DataError(
            f"the features of image '{key}' are not finite with the encoder "
            f"{encoder.name}; with fp16, set ggeur.encoder.precision bf16 or fp32"
        )
    return features


@dataclass(frozen=True)
class _Chunk:
    """Loads and converts images of some rows. An error becomes an `Unreadable`."""

    load: Loader
    keys: Sequence[str]
    convert: Callable[[Loader, int], Any]

    def __call__(self, rows: Sequence[int]) -> list:
        return [self.converted(row) for row in rows]

    def converted(self, row: int) -> Any:
        try:
            return self.convert(self.load, row)
        except DataError as error:
            return Unreadable(str(error))
        except Exception as error:  # decoders raise many kinds
            key = self.keys[row]
            return Unreadable(f"image '{key}': {type(error).__name__}: {error}")


def _as_arrays(chunk: _Chunk, rows: Sequence[int]) -> list:
    """The samples of a chunk for another process: tensors are sent as arrays."""
    return [
        sample.numpy()
        if isinstance(sample, Tensor) and sample.dtype != torch.bfloat16
        else sample
        for sample in chunk(rows)
    ]


def _loaded(
    chunk: _Chunk,
    join: Callable[[list], T],
    settings: ExtractionSettings,
    first: int,
    processes: Processes | None,
) -> Generator[T, None, None]:
    """Yield batches of rows, in order: loaded, converted and joined."""
    prepare = getattr(chunk.load, "prepare", None)
    if prepare is not None:
        prepare()  # once here, so that no forked process has to do it
    size, number = settings.batch_size, len(chunk.keys)
    together = min(_CHUNK, -(-size // 4))
    tasks = [
        range(row, min(row + together, batch + size, number))
        for batch in range(first, number, size)
        for row in range(batch, min(batch + size, number), together)
    ]
    workers = _workers(chunk, settings, len(tasks))
    if not workers:
        yield from _batches(map(chunk, tasks), size, join)
        return
    function = partial(_as_arrays, chunk)
    try:
        with nullcontext(processes) if processes else Processes() as own:
            parts = own.run(function, tasks, workers, prepare is not None)
            yield from ahead(_batches(parts, size, join), _AHEAD)
    except ProcessDied as error:
        raise ConfigError(
            "a process that decodes images died before it was done. It may have lacked "
            "memory; set a smaller ggeur.encoder.batch_size, or "
            "ggeur.encoder.num_workers 0"
        ) from error


def _batches(
    parts: Iterator[list], size: int, join: Callable[[list], T]
) -> Generator[T, None, None]:
    """Join the samples of `parts` into batches of `size`."""
    batch: list = []
    for part in parts:
        batch += [torch.from_numpy(s) if isinstance(s, np.ndarray) else s for s in part]
        if len(batch) == size:
            yield join(batch)
            batch = []
    if batch:
        yield join(batch)


def _workers(chunk: _Chunk, settings: ExtractionSettings, tasks: int) -> int:
    asked = settings.num_workers
    if asked is None and start_method() == "spawn" and pickled(chunk) is None:
        return 0
    if asked is None and tasks == 1:  # to start a process would take longer
        return 0
    wanted = min(usable_cores(), _MOST_WORKERS) if asked is None else asked
    return min(wanted, tasks)


logger = get_logger(__name__)

#: So many images are looked at for their range of grey.
_READ = 50


def _unreadable(images: Images, what: str, bad: dict[int, str]) -> DataError:
    """The error that counts the images that cannot be loaded, and names the first."""
    lines = [next(iter(bad.values()))]
    if len(bad) > 1:
        keys = [images.keys[row] for row in bad]
        count = f"{len(bad)} of {len(images)} images{what and f' of {what}'} "
        lines.append(f"{count}cannot be loaded: {shown(keys)}.")
    if len(bad) < len(images):
        lines.append("To go on without these images, move them elsewhere")
    return DataError(Lines(lines))


def warn_of_dark_grey(images: Images, what: str, grey_bits: int) -> None:
    """Warn of 16-bit grey images that need fewer than `grey_bits`: nearly black ones.

    Some of the images are read, evenly spaced.
    """
    if images.paths is None:
        return
    some = images.paths[:: max(1, len(images.paths) // _READ)]
    values = [v for v in map(largest_grey, some) if v is not None]
    bits = max(max(values, default=0).bit_length(), 8)
    if values and bits < grey_bits - 1:
        logger.warning(
            "%s: the largest of %d 16-bit grey images is %d, so they are nearly black "
            "beside the white of %d bits; if they have %d bits, set %s %d",
            what,
            len(values),
            max(values),
            grey_bits,
            bits,
            setting("encoder.grey_bits"),
            bits,
        )
