"""An image data set as features. A cache that was carried here needs no images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from federatedscope_ggeur.data.cache.entry import Entry
from federatedscope_ggeur.data.cache.files import DamagedError
from federatedscope_ggeur.data.cache.index import (
    Request,
    SplitRecord,
    all_records,
    find_carried,
)
from federatedscope_ggeur.data.embeddings import DataSet, Domain, Embeddings
from federatedscope_ggeur.data.split import split_domain
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.printable import Lines, get_logger

logger = get_logger(__name__)


@dataclass(frozen=True)
class Encoded:
    """An image data set as features.

    Parameters
    ----------
    domains : mapping from name to (train, test or None)
        In the data set's order. None: the data came without a split.
    class_names : tuple of str
    encoder : str
        The encoder's name.
    files : tuple of Path
        Where the features are.
    extracted : int
        How many images were embedded just now. All others were in the cache.
    seconds : float
        How long that took. Loading the encoder does not count.
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
        """Images in all domains and splits."""
        parts = [part for both in self.domains.values() for part in both]
        return sum(len(part) for part in parts if part is not None)

    def data_set(self, splits: Sequence[float], seed: int) -> DataSet:
        """The data set, split by `splits` if the data came without a split.

        Raises
        ------
        ConfigError, DataError
            As `split_domain`.
        """
        domains = [
            split_domain(train, splits, seed)
            if test is None
            else Domain(name, train, test)
            for name, (train, test) in self.domains.items()
        ]
        return DataSet(tuple(domains), self.class_names, self.encoder, self.identity)


def read_carried(
    folder: Path, request: Request, error: DataError, defaults: Mapping[str, object]
) -> Encoded:
    """The data set as a cache holds it, without its images.

    Parameters
    ----------
    folder : Path
        The cache's.
    request : Request
    error : DataError
        Why there are no images. It is raised again if the cache has no such data set.
    defaults : mapping
        Of the reader's own settings.

    Raises
    ------
    DataError
        Also if cache files are damaged or missing.
    """
    found = find_carried(folder, request, defaults)
    if not found:
        held = {record.encoder for record in all_records(folder)}
        if held:
            logger.warning(
                "%s holds features, but none of %s with these settings; it was filled "
                "by %s",
                folder,
                request.data_type,
                "; ".join(sorted(held)),
            )
        raise error
    if len({record.name + str(record.files()) for record in found}) > 1:
        roots = ", ".join(f"'{record.root}'" for record in found)
        several = (
            f"The cache {folder} holds several data sets of this type and encoder; set "
            f"data.root to one of those they were made from: {roots}"
        )
        raise DataError(Lines([*error.lines, several])) from error
    record = found[0]
    logger.warning(
        "the features in %s (%s) are used without the images: %s",
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
        problem = error if isinstance(error, DamagedError) else "it is missing"
        raise DataError(
            f"the cache file '{entry.path}' cannot be used: {problem}; and there "
            "are no images to make it again. Copy the cache folder once more."
        ) from error
