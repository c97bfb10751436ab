"""Turn an image data set into features, by way of the embedding cache.

A copied cache makes the images unnecessary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.printable import Lines, get_logger
from federatedscope_ggeur.settings import Section, check_returned, key, text
from federatedscope_ggeur.settings.registry import filled_in

from . import cache, encoders
from .embeddings import DataSet, Domain, Embeddings
from .extraction import ExtractionSettings, warn_of_dark_grey
from .images.layout import ImageDataSet, ImageReader, Images
from .processes import Processes
from .split import split_domain

logger = get_logger(__name__)


def _device(value) -> str:
    if isinstance(value, str) and re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
        return ""
    return f"must be auto, cpu, cuda or cuda:<number>, got {value!r}"


def _folder(value) -> str:
    problem = text(value)
    return problem or ("" if value else "must name a folder")


class EncodingSettings(Section):
    """The settings for turning the images of a data set into features.

    Parameters
    ----------
    encoder : EncoderSettings
    extraction : ExtractionSettings
    device : str
        The device of the encoder: auto (a GPU if there is one), cpu, cuda or
        cuda:<number>.
    cache : str
        The folder of the embedding cache.
    """

    PREFIX = "encoder."

    encoder: encoders.EncoderSettings = field(default_factory=encoders.EncoderSettings)
    extraction: ExtractionSettings = field(default_factory=ExtractionSettings)
    device: str = key(
        "auto",
        "Where the encoder runs: auto (a GPU if there is one), cpu, cuda or cuda:1. "
        "For heads, see use_gpu and device.",
        _device,
    )
    cache: str = key(
        "embeddings_cache",
        "Folder that keeps embeddings. A machine without images and weights can use a "
        "copy of it.",
        _folder,
    )


@dataclass(frozen=True)
class Pending:
    """The number of images that a run must embed first.

    Parameters
    ----------
    images, total : int
        The number of images that are not in the cache, and the number of all images.
    has_weights : bool
        Whether the encoder's weights are on this machine.
    """

    images: int
    total: int
    has_weights: bool


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
    folder: Path,
    request: cache.RecordQuery,
    error: DataError,
    defaults: Mapping[str, object],
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
    records = cache.find_carried(folder, request, defaults)
    if not records:
        held = {record.encoder for record in cache.all_records(folder)}
        if held:
            logger.warning(
                "the cache %s holds no features of %s with these settings, only "
                "features made by %s",
                folder,
                request.data_type,
                "; ".join(sorted(held)),
            )
        raise error
    if len({record.name + str(record.files()) for record in records}) > 1:
        roots = ", ".join(f"'{record.root}'" for record in records)
        several = (
            f"The cache {folder} holds several data sets of this type and encoder. Set "
            f"data.root to the folder that one of them was made from: {roots}"
        )
        raise DataError(Lines([*error.lines, several])) from error
    record = records[0]
    logger.warning(
        "the features in the cache %s (%s), which were made from '%s', are used, "
        "because there are no images: %s",
        folder,
        record.encoder,
        record.root,
        error,
    )
    domains = {
        one.name: (
            _read_entry(folder, one.name, "train", one.train),
            _read_entry(folder, one.name, "test", one.test),
        )
        for one in record.domains
    }
    files = tuple(folder / file for file in record.files().values())
    return Encoded(
        domains, record.class_names, record.encoder, files, identity=record.identity
    )


def _read_entry(
    folder: Path, domain: str, split: str, part: cache.SplitRecord | None
) -> Embeddings | None:
    if part is None:
        return None
    entry = cache.Entry(folder / part.file, part.key, domain, split)
    try:
        return entry.read()
    except (FileNotFoundError, cache.DamagedError) as error:
        missing = isinstance(error, FileNotFoundError)
        problem = "the file is missing" if missing else error
        raise DataError(
            f"the cache file '{entry.path}' cannot be used: {problem}. There are no "
            "images to make it again. Copy the cache folder once more."
        ) from error


def find_images(
    data_type: str,
    reader: ImageReader,
    root: str,
    settings: EncodingSettings,
    options: Mapping[str, object],
) -> Encoded | Encoding:
    """Find the images of a data set, ready to be embedded.

    If there is nothing below `root`, a cache that was filled with the same settings
    replaces the images. It may have been filled on another machine.

    Parameters
    ----------
    data_type : str
        ``<name>@ggeur``.
    reader : callable (root, **options) -> ImageDataSet
    root : str
    settings : EncodingSettings
    options : mapping
        The reader's own settings, all of them.

    Raises
    ------
    DataError
        What is below `root` is no such data set. Or there is nothing, and the cache
        does not hold the features.
    ConfigError
        The encoder does not accept these settings.
    """
    encoders.check_encoder(settings.encoder)
    encoder = encoders.resolve(settings.encoder)
    request = cache.RecordQuery(data_type, str(root), encoder, options)
    folder = Path(settings.cache).expanduser()
    try:
        images = reader(root, **options)
    except DataError as error:
        defaults = filled_in(reader, {})
        if not _holds_something(root):
            return read_carried(folder, request, error, defaults)
        # Old features in place of images that have changed would go unnoticed.
        if not cache.find_carried(folder, request, defaults):
            raise
        hint = (
            f"The cache {folder} holds features of such a data set; to run on them, "
            "set data.root to a folder that is not there."
        )
        raise DataError(Lines([*error.lines, hint])) from error
    whose = f"the reader of data.type '{data_type}'"
    check_returned(whose, reader, images, ImageDataSet)
    return Encoding(folder, request, settings, images)


def _holds_something(root: str) -> bool:
    """Whether `root` is there, and is not an empty folder."""
    path = Path(root).expanduser()
    try:
        return bool(root) and (path.is_file() or any(path.iterdir()))
    except OSError:
        return path.exists()


def encoded(result: Encoded | Encoding) -> Encoded:
    """The features of the result of `find_images`. Images that need it are embedded."""
    return result.run() if isinstance(result, Encoding) else result


@dataclass
class Encoding:
    """Embeds the images of a data set, by way of the cache."""

    folder: Path
    request: cache.RecordQuery
    settings: EncodingSettings
    images: ImageDataSet
    extracted: int = 0
    seconds: float = 0.0

    def __post_init__(self):
        self._known = cache.read_record(cache.record_path(self.folder, self.request))
        self._stamp = encoders.encoder_stamp(self.settings.encoder)
        self._processes = Processes()

    def run(self) -> Encoded:
        """Embed the images, except those whose features are in the cache.

        Raises
        ------
        DataError
            An image cannot be read.
        ConfigError
            The encoder cannot be built, or the cache cannot be written.
        """
        domains, records = {}, []
        with self._processes:
            for domain in self.images.domains:
                name = domain.name
                train, of_train = self._embed(name, "train", domain.train)
                test, of_test = self._embed(name, "test", domain.test)
                domains[name] = train, test
                records.append(cache.DomainRecord(name, of_train, of_test))
        record = cache.Record(
            request=self.request.without_root(),
            root=self.request.root,
            name=self.images.name,
            class_names=tuple(self.images.class_names),
            domains=tuple(records),
            dim=domains[self.images.domains[0].name][0].dim,
            encoder=self._name,
            identity=self._identity,
            stamp=self._stamp,
        )
        self._keep(record)
        files = tuple(self.folder / file for file in record.files().values())
        return Encoded(
            domains,
            record.class_names,
            self._name,
            files,
            self.extracted,
            self.seconds,
            self._identity,
        )

    def pending(self) -> Pending | None:
        """The images that `run` would embed; None if there are none.

        Nothing is written or fetched.
        """
        parts = [
            (domain.name, split, images)
            for domain in self.images.domains
            for split, images in (("train", domain.train), ("test", domain.test))
            if images is not None
        ]
        total = sum(len(images) for _, _, images in parts)
        here = self._stamp is None or self._stamp.get("weights", "") is not None
        # To build the encoder would fetch its weights.
        if not (self._is_known_encoder or here):
            return Pending(total, total, here)
        missing = sum(self._entry(*part)[1].missing(part[2]) for part in parts)
        return Pending(missing, total, here) if missing else None

    def _entry(
        self, domain: str, split: str, images: Images
    ) -> tuple[str, cache.Entry]:
        """The path of an entry inside the cache folder, and the entry itself."""
        where = self.images.name, domain, split
        key = cache.content_key(self._identity, where, images)
        file = cache.entry_file(self._identity, where, key)
        return file, cache.Entry(self.folder / file, key, domain, split)

    def _embed(
        self, domain: str, split: str, images: Images | None
    ) -> tuple[Embeddings | None, cache.SplitRecord | None]:
        if images is None:
            return None, None
        settings = self.settings
        file, entry = self._entry(domain, split, images)
        features = entry.read_if_whole()
        if features is None:
            self._say_if_stale(domain, split, file)
            warn_of_dark_grey(images, entry.what, settings.encoder.grey_bits)
            how = settings.extraction
            made = entry.fill(images, self._encoder, how, self._processes)
            features = made.features
            self.extracted += made.rows
            self.seconds += made.seconds
        return features, cache.SplitRecord(file, entry.key, len(features))

    def _say_if_stale(self, domain: str, split: str, file: str) -> None:
        before = self._known.files().get((domain, split)) if self._known else None
        if before not in (None, file):
            logger.warning(
                "the features of domain '%s' (%s) in %s are out of date, because "
                "images or encoder have changed. They are made again; the old ones "
                "stay in %s",
                domain,
                split,
                self.folder,
                before,
            )

    @cached_property
    def _identity(self) -> Mapping[str, object]:
        """The entries that identify the encoder of the features.

        If nothing on which the identity depends has changed, the recorded identity is
        used. So a run with a full cache loads no model.
        """
        if self._is_known_encoder:
            return self._known.identity
        return self._encoder.identity

    @cached_property
    def _name(self) -> str:
        trusted = self._known is not None and self._identity is self._known.identity
        return self._known.encoder if trusted else self._encoder.name

    @property
    def _is_known_encoder(self) -> bool:
        """Whether the encoder is the one whose identity is recorded."""
        if self._known is None:
            return False
        now, then = self._stamp, self._known.stamp
        if now is None or then is None:
            return False
        return now == then or ("weights" in now and now["weights"] is None)

    @cached_property
    def _encoder(self) -> encoders.Encoder:
        device = encoders.pick_device(self.settings.device)
        encoder = encoders.build_encoder(
            self.settings.encoder, device, self.images.grey
        )
        logger.info("encoder: %s, D = %d, on %s", encoder.name, encoder.dim, device)
        if "_identity" in self.__dict__ and encoder.identity != self._identity:
            raise ConfigError(
                f"the cache {self.folder} was filled by another encoder than "
                f"{encoder.name}, though the weights look the same; set "
                "ggeur.encoder.cache to another folder"
            )
        return encoder

    def _keep(self, record: cache.Record) -> None:
        if record == self._known:
            return
        try:
            cache.write_record(self.folder, self.request, record)
        except ConfigError as error:
            # The features can be used without the record, e.g. from a read-only medium.
            logger.warning("%s", error)
