"""Find images that cannot be loaded, and equal files in different classes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from federatedscope_ggeur.errors import ConfigError, DataError, setting
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.printable import Lines, get_logger

from .extraction import ExtractionSettings, unreadable_rows
from .images.base import Images
from .images.files import largest_grey
from .images.layout import shown

logger = get_logger(__name__)

_FEW = 5
#: So many images are looked at for their range of grey.
_READ = 50


class LeftOut:
    """The images of one domain and split that cannot be loaded. The cache keeps a list.

    Parameters
    ----------
    folder : Path
        The folder of the cache.
    where : [data set, domain, split]
    images : Images
        All images of the domain and split.
    """

    def __init__(self, folder: Path, where: Sequence[str], images: Images):
        self._what, self._images = f"'{where[1]}' ({where[2]})", images
        parts = [*where, images.keys, images.stamps]
        name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        self._path = folder / "unreadable" / f"{name}.json"

    def known(self) -> Images:
        """The images, except the ones that the cache lists as unreadable."""
        with suppress(OSError, ValueError, TypeError):
            noted = set(json.loads(self._path.read_text(encoding="utf-8")))
            return self._without([k in noted for k in self._images.keys])
        return self._images

    def found(
        self, first: DataError, settings: ExtractionSettings, skip: bool
    ) -> Images:
        """Find all images that cannot be loaded, after the `first` error.

        Returns
        -------
        Images
            The images that can be loaded.

        Raises
        ------
        DataError
            `skip` is False, or no image is left. The error names the first few images,
            and how many there are.
        """
        bad = unreadable_rows(self._images, settings)
        if not bad:  # all images can be loaded, so something else is wrong
            raise first
        total, keys = len(self._images), [self._images.keys[row] for row in bad]
        count = f"{len(bad)} of {total} images of {self._what} cannot be loaded"
        if not skip or len(bad) == total:
            lines = [next(iter(bad.values()))]
            if len(bad) > 1:
                lines.append(f"{count}: {shown(keys)}.")
            if len(bad) < total:
                way_out = f"{setting('encoder.skip_unreadable')} True"
                lines.append(f"To go on without these images, set {way_out}")
            raise DataError(Lines(lines)) from first
        logger.warning("%s, so they are left out: %s", count, shown(keys[:_FEW]))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps(keys))
        except (OSError, ConfigError) as error:  # the next run finds the images again
            logger.warning("%s", error)
        return self._without([row in bad for row in range(total)])

    def _without(self, is_bad: Collection[bool]) -> Images:
        rows = np.flatnonzero(~np.asarray(list(is_bad), dtype=bool))
        return select(self._images, rows)


def select(images: Images, rows: np.ndarray) -> Images:
    """The images with the row numbers `rows`, which must be ascending."""

    def some(column: tuple) -> tuple:
        return tuple(column[row] for row in rows)

    return replace(
        images,
        labels=images.labels[rows],
        keys=some(images.keys),
        stamps=some(images.stamps),
        load=_Selected(images.load, rows.tolist()),
        users=None if images.users is None else images.users[rows],
        paths=None if images.paths is None else some(images.paths),
    )


class _Selected:
    """A loader of some images of another loader."""

    def __init__(self, load: Callable, rows: list[int]):
        self._load, self._rows = load, rows
        self.prepare = getattr(load, "prepare", None)
        if hasattr(load, "path"):
            self.path = self._path

    def __call__(self, row: int):
        return self._load(self._rows[row])

    def _path(self, row: int) -> str:
        return self._load.path(self._rows[row])  # type: ignore[attr-defined]


def in_several_classes(images: Images) -> list[list[str]]:
    """Groups of files with equal bytes and different labels, as lists of keys."""
    if images.paths is None:
        return []
    groups = [list(range(len(images)))]
    # Sizes are compared first, so that only files of the same size are read.
    for feature in (_size, _digest):
        parts: dict[tuple, list[int]] = {}
        for number, group in enumerate(groups):
            for row in group:
                parts.setdefault((number, feature(images.paths[row])), []).append(row)
        groups = [g for g in parts.values() if len({*images.labels[g].tolist()}) > 1]
    return [[images.keys[row] for row in group] for group in groups]


def warn_of_several_classes(images: Images, what: str) -> None:
    """Warn of equal files in several classes: at most one of their labels is right."""
    groups = in_several_classes(images)
    if groups:
        logger.warning(
            "%s: %d files are equal to a file of another class, e.g. %s; only one of "
            "their labels can be right",
            what,
            sum(map(len, groups)),
            shown(groups[0][:_FEW]),
        )


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


def _size(path: str) -> int:
    return Path(path).stat().st_size


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
