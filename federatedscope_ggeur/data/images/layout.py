"""Find a known data set below ``data.root``, or say what was expected there.

The result of an image reader: labelled images by domain and split, none loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from PIL import Image

from federatedscope_ggeur.errors import DataError, listed
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.settings import Key, Registry
from federatedscope_ggeur.settings.registry import registered

from ..labels import checked_names

logger = get_logger(__name__)

_DEBRIS = frozenset(("__macosx", "@eadir", "$recycle.bin"))
_MOST_SHOWN = 10
#: Names of the parts of a split, as people spell them.
_SPLIT = re.compile(
    r"(train|training|test|testing|val|valid|validation|dev|eval|evaluation|holdout)"
    r"(\d*|set|data|dataset|split|images|rows|embeddings|features)"
)


def spelling(name: str) -> str:
    """`name` in lower case, without blanks, "_" and "-"."""
    return re.sub(r"[\s_-]+", "", name).lower()


def split_problem(names: Sequence[str]) -> str:
    """Why domains of these names look like the parts of a split; else ""."""
    matches = {name: _SPLIT.fullmatch(spelling(name)) for name in names}
    parts = {name: match[1][:2] for name, match in matches.items() if match}
    if "tr" not in parts.values() or len(set(parts.values())) < 2:
        return ""
    return (
        f"{shown(sorted(parts))} look like the parts of a split, but would be domains; "
        "call them train and test, or rename them if they are domains"
    )


def shown(names: Sequence[str]) -> str:
    """The first few of `names` in quotes, for a message."""
    return listed([f"'{name}'" for name in names], _MOST_SHOWN)


def subfolders(folder: Path) -> list[Path]:
    """The folders in `folder`, sorted by name, without hidden and system folders."""
    # Not iterdir, because scandir finds the folders without a look at each file.
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_dir()]
    kept = (n for n in names if n[0] != "." and n.lower() not in _DEBRIS)
    return [folder / name for name in sorted(kept)]


def nested(top: Path, depth: int, fits: Callable[[str], bool]) -> list[Path]:
    """`top`, and the folders in it whose `spelling` fits, the outermost first.

    Folders in these count, too, down to `depth`.
    """
    places = [top]
    for place in places:
        if len(place.relative_to(top).parts) < depth:
            places += [path for path in subfolders(place) if fits(spelling(path.name))]
    return places


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, without blank lines."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


@contextmanager
def unreadable_named(path: Path) -> Iterator[None]:
    """Turn the system's errors into a `DataError` that names the file or folder."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or path}: the file or folder cannot be read "
            f"({error.strerror or error}). Correct data.root or its permissions."
        ) from error


def is_there(path: Path) -> bool:
    """Whether `path` is a file. Folders, broken links and the like are refused."""
    if not os.path.lexists(path):
        return False
    if not path.exists():
        raise DataError(
            f"{path}: is a link to '{os.readlink(path)}', which does not exist. "
            "Correct the link or remove it."
        )
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "a pipe, socket or device"
        raise DataError(f"{path}: is {kind}, not a file. Rename or remove it.")
    return True


def read_text(path: Path) -> str:
    """The text of a file in UTF-8."""
    try:
        with unreadable_named(path):
            return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: the text is not UTF-8 ({error}). Save it as UTF-8."
        ) from error


def read_class_names(root: Path) -> tuple[str, ...] | None:
    """The classes in order, by ``class_names.txt`` in `root`; None without this file.

    Raises
    ------
    DataError
        The file cannot be read, or a line names no class, or one a second time.
    """
    path = root / "class_names.txt"
    if not is_there(path):
        return None
    names = [line.strip() for line in read_text(path).rstrip().splitlines()]
    for number, name in enumerate(names, start=1):
        if not name or name in names[: number - 1]:
            problem = f"repeats the name '{name}'" if name else "is empty"
            raise DataError(f"{path}: line {number} {problem}; name each class once.")
    return checked_names(names, str(path))


@dataclass(frozen=True)
class Layout:
    """The files and folders in which a data set is distributed.

    Parameters
    ----------
    name : str
        The name of the data set, e.g. ``"pacs"``.
    accepted : str
        The accepted layout below ``data.root`` or in a container, for messages.
    source : str
        The place to get the data set from, for messages.
    domains : mapping of str to sequence of str
        The domains in the data set's order, and other names that the folder of each may
        have.
    containers : sequence of str
        The names of folders that may stand between ``data.root`` and the domains. Such
        a folder may also be inside another. "*" at the end stands for any text.
    lists : sequence of str
        The names of folders beside the domains that may hold the official lists
        ``<domain>_<part>.txt``. They may also lie among the domains.
    parts : sequence of str
        The names of the lists to train on and to test on; empty if there are none.
    known_errors : sequence of str
        Images ``<class>/<file>`` that the lists name by mistake: no release has them.

    Names of folders are compared by `spelling`.
    """

    name: str
    accepted: str
    source: str
    domains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    containers: Sequence[str] = ()
    lists: Sequence[str] = ()
    parts: Sequence[str] = ()
    known_errors: Sequence[str] = ()

    def problem(self, where: Path, what: str) -> DataError:
        """Make an error that states the problem, the expected files and the source."""
        expected = self.accepted
        if self.domains:
            folders = [" or ".join((d, *more)) for d, more in self.domains.items()]
            expected += f", with the domains {', '.join(folders)}"
        if self.containers:
            expected += f", directly or in a folder {' or '.join(self.containers)}"
        if self.parts:
            lists = [f"<domain>_{part}.txt" for part in self.parts]
            expected += f"; beside them, or in a folder {' or '.join(self.lists)}, "
            expected += f"the official lists {' and '.join(lists)} if there are any"
        return DataError(
            f"{where.absolute()}: {what} {self.name}@ggeur looks below data.root for "
            f"{expected}. Nothing is downloaded. Get the data set from {self.source}."
        )

    def lacking(self, root: Path, what: str) -> DataError:
        """Make an error as `problem` does, which also lists the content of `root`."""
        held = shown([path.name for path in sorted(root.iterdir())])
        return self.problem(root, f"the folder data.root {what}. It holds {held}.")

    @contextmanager
    def opened(self, root: str | Path) -> Iterator[Path]:
        """Check that `root` is a folder, and make system errors `DataError` inside."""
        root = Path(root).expanduser()
        with unreadable_named(root):
            if not root.is_dir():
                problem = "is not a folder." if root.exists() else "does not exist."
                raise self.problem(root, f"data.root {problem}")
            yield root

    def bases(self, root: Path) -> list[Path]:
        """`root` and the containers below it, the outermost first."""
        known = list(map(spelling, self.containers))
        return nested(root, 3, lambda name: any(fnmatchcase(name, k) for k in known))

    def domain_folders(self, base: Path) -> dict[str, Path]:
        """The folders in `base` that are domains of the set, in the set's order."""
        spelt: dict[str, list[Path]] = {}
        for path in subfolders(base):
            spelt.setdefault(spelling(path.name), []).append(path)
        folders = {}
        for domain, others in self.domains.items():
            names = dict.fromkeys(map(spelling, (domain, *others)))
            paths = [path for name in names for path in spelt.get(name, ())]
            if len(paths) > 1:
                raise DataError(
                    f"{base}: the folders {shown([path.name for path in paths])} are "
                    f"all for the domain '{domain}'. Keep one of them."
                )
            if paths:
                folders[domain] = paths[0]
        return folders

    def find_domains(self, root: Path) -> dict[str, Path]:
        """The domains' folders in `root`, or in the one container that has any.

        Raises
        ------
        DataError
            There are no domains, or several containers have some.
        """
        groups = list(filter(None, map(self.domain_folders, self.bases(root))))
        if not groups:
            raise self.lacking(root, "has none of the domains")
        if len(groups) > 1:
            places = [str(next(iter(folders.values())).parent) for folders in groups]
            raise DataError(
                f"{root}: several folders hold domains of {self.name}: "
                f"{shown(places)}. Set data.root to one of them."
            )
        self.log_absent(root, groups[0])
        return groups[0]

    def first_files(
        self, root: Path, places: Sequence[Path], files: Sequence[Sequence[str]]
    ) -> list[Path]:
        """Each of `files` (names that it may have), from the first of `places` with it.

        The list is empty if there is none of them.

        Raises
        ------
        DataError
            Some are there, and others are missing.
        """
        candidates = [[place / n for place in places for n in names] for names in files]
        paths = [next((p for p in one if p.is_file()), None) for one in candidates]
        missing = [names[0] for names, path in zip(files, paths) if path is None]
        there = [path for path in paths if path is not None]
        if there and missing:
            held = shown([str(path) for path in there])
            raise self.problem(
                root, f"{shown(missing)} is missing, but there is {held}."
            )
        return there

    def log_absent(self, root: Path, present: Mapping[str, object]) -> None:
        """Warn of domains that are missing. The run uses the others."""
        absent = [domain for domain in self.domains if domain not in present]
        if absent:
            logger.warning(
                "%s: the folder %s has no domain %s; the data set has only %s",
                self.name,
                root,
                shown(absent),
                shown(list(present)),
            )


Loader = Callable[[int], Image.Image]


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images of one domain that are not loaded yet.

    Parameters
    ----------
    labels : array of shape [n], int64
        The class numbers; n may be 0.
    keys : tuple of str, of length n
        The name of each image within the data set, e.g. its path below the root, or
        ``"t10k-images-idx3-ubyte#17"``. No two are equal.
    stamps : tuple of str, of length n
        Texts that change if an image may have changed, e.g. size and time of its file.
    load : callable (row) -> PIL image, mode RGB
        Loads one image. Several processes may call this function. If an image cannot be
        read, it raises a `DataError` with the path.
    users : array of shape [n], int64, or None
        The number of the user who made each image, from 0 within the domain. None if
        unknown.
    paths : tuple of str, of length n, or None
        The file of each image. None if images share files.

    Raises
    ------
    DataError
        The lengths differ.
    """

    labels: np.ndarray
    keys: tuple[str, ...]
    stamps: tuple[str, ...]
    load: Loader
    users: np.ndarray | None = None
    paths: tuple[str, ...] | None = None

    def __post_init__(self):
        columns = [self.labels, self.keys, self.stamps]
        columns += [] if self.users is None else [self.users]
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise DataError(
                f"labels, keys, stamps and users must have the same length, but have "
                f"{lengths}"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ImageDomain:
    """The images of one domain.

    Parameters
    ----------
    name : str
    train : Images
        The training images; all images if the data come without a split.
    test : Images or None
        The test images. None if the data come without a split; `data.splits` then makes
        one.
    """

    name: str
    train: Images
    test: Images | None


@dataclass(frozen=True)
class ImageDataSet:
    """An image data set, as an image reader returns it.

    Parameters
    ----------
    name : str
        The name of the data set, e.g. ``"pacs"``.
    domains : sequence of ImageDomain
        At least one domain, in a fixed order. Their names differ.
    class_names : tuple of str
        The name of class c stands at position c. The order is fixed.
    grey : bool
        Whether all images are grey. Encoders that keep pixels then keep one channel.
    """

    name: str
    domains: Sequence[ImageDomain]
    class_names: tuple[str, ...]
    grey: bool = False


ImageReader = Callable[..., ImageDataSet]
IMAGE_READERS: Registry[ImageReader] = Registry("image reader", "data.type")


def register_image_reader(
    name: str, settings: Sequence[Key] = (), bundled: bool = False
) -> Callable[[ImageReader], ImageReader]:
    """Decorator: register a function that reads the image data set ``<name>@ggeur``.

    The function is called as ``reader(root, **own)`` with its own `settings`,
    ``ggeur.<name>.*``. It finds and checks the files and loads none of the images. A
    setting that changes how an image looks must be part of the images' `stamps`.
    `bundled` says that the images come with the program; `root` is then ignored.
    """
    return registered(IMAGE_READERS, name, settings, ("root",), bundled=bundled)
