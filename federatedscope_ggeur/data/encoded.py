"""An image data set as features. A copied cache makes the images unnecessary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.printable import Lines, get_logger

from .cache import (
    DamagedError,
    Entry,
    RecordQuery,
    SplitRecord,
    all_records,
    find_carried,
)
from .embeddings import DataSet, Domain, Embeddings
from .split import split_domain

logger = get_logger(__name__)


@dataclass(frozen=True)
class Encoded:
    """An image data set whose images were turned into features.

    Parameters
    ----------
    domains : mapping from name to (train, test or None)
        The features of each domain, in the data set's order. `test` is None if the data
        came without a split.
    class_names : tuple of str
    encoder : str
        The encoder's name.
    files : tuple of Path
        The cache files with the features.
    extracted : int
        The number of images that were embedded just now. All others were in the cache.
    seconds : float
        The time that this took, without loading the encoder.
    identity : mapping or None
        The encoder's identity.
    """

    domains: Mapping[str, tuple[Embeddings, Embeddings | None]]
    class_names: tuple[str, ...]
    encoder: str
    files: tuple[Path, ...]
    extracted: int = 0
    seconds: float = 0.0
    identity: Mapping[str, object] | None = None

    @property
    def dim(self) -> int:
        """D, the length of one embedding."""
        return next(iter(self.domains.values()))[0].dim

    def __len__(self) -> int:
        """The number of images in all domains and splits."""
        parts = [part for both in self.domains.values() for part in both]
        return sum(len(part) for part in parts if part is not None)

    def data_set(self, splits: Sequence[float], seed: int) -> DataSet:
        """Make the data set. `splits` divides the rows if the data came without a
        split.

        Raises
        ------
        ConfigError, DataError
            The errors of `split_domain`.
        """
        domains = [
            split_domain(train, splits, seed)
            if test is None
            else Domain(name, train, test)
            for name, (train, test) in self.domains.items()
        ]
        return DataSet(tuple(domains), self.class_names, self.encoder, self.identity)


def read_carried(
    folder: Path, request: RecordQuery, error: DataError, defaults: Mapping[str, object]
) -> Encoded:
    """Read a data set from a cache, without its images.

    Parameters
    ----------
    folder : Path
        The folder of the cache.
    request : RecordQuery
    error : DataError
        The reason why there are no images. It is raised again if the cache has no such
        data set.
    defaults : mapping
        The defaults of the reader's own settings.

    Raises
    ------
    DataError
        The cache has no such data set, or its files are damaged or missing.
    """
    found = find_carried(folder, request, defaults)
    if not found:
        held = {record.encoder for record in all_records(folder)}
        if held:
            logger.warning(
                "the cache %s holds no features of %s with these settings, only "
                "features made by %s",
                folder,
                request.data_type,
                "; ".join(sorted(held)),
            )
        raise error
    if len({record.name + str(record.files()) for record in found}) > 1:
        roots = ", ".join(f"'{record.root}'" for record in found)
        several = (
            f"The cache {folder} holds several data sets of this type and encoder. Set "
            f"data.root to the folder that one of them was made from: {roots}"
        )
        raise DataError(Lines([*error.lines, several])) from error
    record = found[0]
    logger.warning(
        "the features in the cache %s (%s) are used, because there are no images: %s",
        folder,
        record.encoder,
        error,
    )
    domains = {
        domain.name: (
            _read_entry(folder, domain.name, "train", domain.train),
            domain.test and _read_entry(folder, domain.name, "test", domain.test),
        )
        for domain in record.domains
    }
    files = tuple(folder / file for file in record.files().values())
    return Encoded(
        domains, record.class_names, record.encoder, files, identity=record.identity
    )


def _read_entry(folder: Path, domain: str, split: str, part: SplitRecord) -> Embeddings:
    entry = Entry(folder / part.file, part.key, domain, split)
    try:
        return entry.read()
    except (FileNotFoundError, DamagedError) as error:
        problem = error if isinstance(error, DamagedError) else "the file is missing"
        raise DataError(
            f"the cache file '{entry.path}' cannot be used: {problem}. There are no "
            "images to make it again. Copy the cache folder once more."
        ) from error
