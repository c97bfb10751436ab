"""Read trees of image files (``data.type: image_folder@ggeur``).

All readers of image trees use `read_domains` and `data_set`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.printable import get_logger

from ..labels import in_order
from .files import NOT_READ, images_from_files, is_image_name
from .layout import (
    ImageDataSet,
    ImageDomain,
    Images,
    Layout,
    read_class_names,
    read_lines,
    register_image_reader,
    shown,
    spelling,
    split_problem,
    subfolders,
)

logger = get_logger(__name__)

#: One split's image files as pairs (class, path), sorted by name within a class.
Files = list[tuple[str, str]]
Naming = Callable[[str], "str | None"]

_LINE = re.compile(r"(?:.*/)?([^/]+)/([^/]+)\s+(\d+)")
_OR_NONE = "move all lists elsewhere, so that data.splits makes the split"

_LAYOUT = Layout(
    name="image_folder",
    accepted=(
        "<domain>/<class>/<image file>, or <domain>/train/<class>/<image file> and "
        "<domain>/test/<class>/<image file>, or train/<class>/<image file> and "
        "test/<class>/<image file> (one domain)"
    ),
    source="wherever your images are: this reader takes any such tree",
)


@dataclass(frozen=True)
class DomainFiles:
    """The image files of one domain. `test` is None if there is no split."""

    name: str
    folder: Path
    train: Files
    test: Files | None

    @property
    def classes(self) -> set[str]:
        return {name for name, _ in (*self.train, *(self.test or ()))}


@register_image_reader("image_folder")
def read_image_folder(root: str | Path) -> ImageDataSet:
    """Read any tree of images: a folder for each domain, with a folder for each class.

    Layouts: ``<domain>/<class>/<file>``; ``<domain>/{train,test}/<class>/<file>``;
    ``{train,test}/<class>/<file>`` (one domain, called "all"). One folder ``images``
    may stand between a domain and its classes. Domains and classes are sorted by name
    (by code point: "TV" before "Table"). Hidden files are ignored, and so are files
    that are not images.

    ``class_names.txt`` beside them may name all classes (one in each line, class 0
    first). Domains may then lack classes.

    Raises
    ------
    DataError
        There is no such tree, or a class folder is empty. Or domains differ in their
        classes; or ``class_names.txt`` lacks a class.
    """
    with _LAYOUT.opened(root) as root:
        folders = subfolders(root)
        if not folders:
            raise _LAYOUT.problem(root, "the folder data.root has no folders.")
        names = {folder.name.lower() for folder in folders}
        if names & {"train", "test", "val", "valid", "validation"}:
            if names != {"train", "test"}:
                present = shown([folder.name for folder in folders])
                raise _LAYOUT.problem(root, f"the folder has the folders {present}.")
            domains = [read_domain("all", root)]
        elif problem := split_problem([folder.name for folder in folders]):
            raise _LAYOUT.problem(root, f"the folders {problem}.")
        else:
            domains = [read_domain(folder.name, folder) for folder in folders]
        classes = read_class_names(root)
        if classes is None:
            return data_set("image_folder", root, domains)
        check_known_classes(domains, classes, root)
        return numbered("image_folder", root, domains, classes)


def read_domains(
    layout: Layout, root: Path, naming: Naming = str, wanted: Collection[str] = ()
) -> list[DomainFiles]:
    """Find the files of all domains of a data set, split by its official lists, if any.

    `wanted` is as in `OfficialLists.split`, and the rest as in `read_domain`.
    """
    folders = layout.find_domains(root)
    domains = [read_domain(name, path, naming) for name, path in folders.items()]
    lists = OfficialLists.find(layout, root)
    return [lists.split(one, wanted) for one in domains] if lists else domains


def read_domain(
    name: str,
    folder: Path,
    naming: Naming = str,
    trains: Sequence[str] = ("train",),
    tests: Sequence[str] = ("test",),
) -> DomainFiles:
    """Find the files of one domain: ``<class>/<file>`` or
    ``{train,test}/<class>/<file>``.

    Parameters
    ----------
    name : str
        The name of the domain.
    folder : path
    naming : callable (folder's name) -> class or None
        Gives the class of a folder. None means that the folder is no class of the data
        set.
    trains, tests : sequence of str
        The names that the folder of training or of test images may have, in lower case.

    Raises
    ------
    DataError
        There are no classes, or a part of the split is missing. A class folder is empty
        or holds folders. Or two folders have the same class.
    """
    inside = subfolders(folder)
    if [path.name.lower() for path in inside] == ["images"] and subfolders(inside[0]):
        inside = subfolders(inside[0])
    split = _split_folders(folder, inside, trains, tests)
    if split is None:
        return DomainFiles(name, folder, class_files(folder, inside, naming), None)
    parts = [class_files(part, subfolders(part), naming) for part in split]
    return DomainFiles(name, folder, *parts)


def _split_folders(
    folder: Path, inside: list[Path], trains: Sequence[str], tests: Sequence[str]
) -> tuple[Path, Path] | None:
    train = [path for path in inside if path.name.lower() in trains]
    test = [path for path in inside if path.name.lower() in tests]
    others = [path.name for path in inside if path not in (*train, *test)]
    if not (train and test) and (others or not inside):
        return None
    if others or len(train) != 1 or len(test) != 1:
        raise DataError(
            f"{folder}: the folders of a domain must be its classes, or one of "
            f"{shown(trains)} and one of {shown(tests)}, but are "
            f"{shown([path.name for path in inside])}. Add the missing folder, or move "
            "the others elsewhere."
        )
    return train[0], test[0]


def class_files(folder: Path, classes: Sequence[Path], naming: Naming) -> Files:
    """The image files in each of the folders `classes`, which lie in `folder`."""
    if not classes:
        loose = sum(is_image_name(name) for name in os.listdir(folder))
        raise DataError(
            f"{folder}: the folder has no class folders"
            + (f", but {loose} image(s)" if loose else "")
            + ". Put the images of each class into a folder: <domain>/<class>/<file>."
        )
    files: Files = []
    folders: dict[str, str] = {}
    passed_over: Counter[str] = Counter()
    for path in classes:
        name = naming(path.name)
        if name is None:
            continue
        if name in folders:
            raise DataError(
                f"{path}: the class '{name}' has a second folder, "
                f"'{folders[name]}'. Keep one of them."
            )
        folders[name] = path.name
        files += [(name, file) for file in image_files(path, passed_over)]
    if passed_over:
        counts = ", ".join(f"{n} {suffix}" for suffix, n in sorted(passed_over.items()))
        logger.warning(
            "%s: %d images are ignored, because their formats are not read (%s). Save "
            "them as .png or .jpg",
            folder,
            sum(passed_over.values()),
            counts,
        )
    return files


def image_files(folder: Path, passed_over: Counter[str] | None = None) -> list[str]:
    """The paths of all image files directly in `folder`, sorted by name.

    `passed_over` counts images in formats that are not read, by suffix.

    Raises
    ------
    DataError
        There is no image. Or there are folders, whose images would be lost.
    """
    nested = subfolders(folder)
    if nested:
        raise DataError(
            f"{folder}: the class has the folder(s) "
            f"{shown([path.name for path in nested])}. Put all images of a class "
            "directly into its folder."
        )
    names = sorted(os.listdir(folder))
    paths = [os.path.join(folder, name) for name in names if is_image_name(name)]
    suffixes = [os.path.splitext(name)[1].lower() for name in names if name[0] != "."]
    if passed_over is not None:
        passed_over.update(suffix for suffix in suffixes if suffix in NOT_READ)
    if not paths:
        raise DataError(
            f"{folder}: the folder has no image files, only {len(names)} other "
            "file(s). Put the images of this class there, or remove the folder."
        )
    return paths


def check_same_classes(
    classes: Mapping[str, set[str]], folders: Mapping[str, Path]
) -> None:
    """Raise a `DataError` if domains have different classes.

    The message lists the classes that each domain lacks. `classes` and `folders` have
    the domains as keys.
    """
    everything = set().union(*classes.values())
    lacking = [
        f"'{domain}' ({folders[domain]}) lacks {shown(sorted(everything - own))}"
        for domain, own in classes.items()
        if everything - own
    ]
    if lacking:
        raise DataError(
            f"all domains must have the same classes. {len(everything)} classes were "
            f"found, but {'; '.join(lacking)}. Add, rename or remove class folders."
        )


def check_known_classes(
    domains: Sequence[DomainFiles], classes: Sequence[str], root: Path
) -> None:
    """Raise a `DataError` for folders of classes that ``class_names.txt`` lacks."""
    for domain in domains:
        unknown = sorted(domain.classes.difference(classes))
        if unknown:
            raise DataError(
                f"{domain.folder}: the classes {shown(unknown)} are not in "
                f"{root / 'class_names.txt'}, which names {shown(classes)}. Rename or "
                "remove their folders, or name them there."
            )


def data_set(
    name: str,
    root: Path,
    domains: Sequence[DomainFiles],
    order: Sequence[str] | None = None,
    class_names: Mapping[str, str] | None = None,
) -> ImageDataSet:
    """Number the classes, and make a data set of domains with the same classes.

    Parameters
    ----------
    name : str
        The name of the data set.
    root : path
        The folder of the data set. The images' keys are paths below it.
    domains : sequence of DomainFiles
    order : sequence of str or None
        Classes in the order of their numbers. By default they are sorted by name, or
        by size if all names are numbers.
        Classes without images get no number.
    class_names : mapping of class to name, or None
        Other names for the classes.

    Raises
    ------
    DataError
        Domains differ in their classes, or a file does not exist.
    """
    check_same_classes(
        {domain.name: domain.classes for domain in domains},
        {domain.name: domain.folder for domain in domains},
    )
    present = domains[0].classes
    classes = [c for c in (order or in_order(present)) if c in present]
    return numbered(name, root, domains, classes, class_names or {})


def numbered(
    name: str,
    root: Path,
    domains: Sequence[DomainFiles],
    classes: Sequence[str],
    class_names: Mapping[str, str] = MappingProxyType({}),
) -> ImageDataSet:
    """Make a data set whose class c is ``classes[c]``. A domain may lack classes."""
    made = tuple(
        ImageDomain(
            domain.name,
            images_of(root, domain.train, classes),
            None if domain.test is None else images_of(root, domain.test, classes),
        )
        for domain in domains
    )
    return ImageDataSet(name, made, tuple(class_names.get(c, c) for c in classes))


def images_of(root: Path, files: Files, classes: Sequence[str]) -> Images:
    """The images in the order of classes, and sorted by file name within a class."""
    place = {name: number for number, name in enumerate(classes)}
    numbers = [place.get(name, -1) for name, _ in files]
    kept = [row for row in np.argsort(numbers, kind="stable") if numbers[row] >= 0]
    paths = [files[row][1] for row in kept]
    return images_from_files(root, paths, [numbers[row] for row in kept])


class Line(NamedTuple):
    """One line of a list: an image, its class, and the number of the class."""

    class_name: str
    image: str
    number: int


@dataclass(frozen=True)
class OfficialLists:
    """The official lists ``<domain>_<part>.txt`` in a folder."""

    layout: Layout
    folder: Path

    @classmethod
    def find(cls, layout: Layout, root: Path) -> OfficialLists | None:
        """The lists of a data set; None if there are none."""
        known = set(map(spelling, layout.lists))
        for base in layout.bases(root):
            inside = [p for p in subfolders(base) if spelling(p.name) in known]
            for lists in (cls(layout, folder) for folder in (base, *inside)):
                files = [lists.file(d, p) for d in layout.domains for p in layout.parts]
                if any(file.is_file() for file in files):
                    return lists
        return None

    def file(self, domain: str, part: str) -> Path:
        return self.folder / f"{domain}_{part}.txt"

    def lines(self, domain: str, part: str) -> Iterator[Line]:
        """Yield the lines ``<domain>/<class>/<file> <number>`` of one list.

        Raises
        ------
        DataError
            The list is missing or empty, or a line has another form.
        """
        file = self.file(domain, part)
        if not file.is_file():
            raise DataError(
                f"{file}: this official list is missing, but {self.folder} has others. "
                f"Restore it, or {_OR_NONE}."
            )
        lines = read_lines(file)
        if not lines:
            raise DataError(f"{file}: the list names no images. Restore it.")
        for line in lines:
            match = _LINE.fullmatch(line)
            if match is None:
                raise DataError(
                    f"{file}: the line '{line[:80]}' has not the form "
                    "'<domain>/<class>/<file> <number>'. Restore the list."
                )
            yield Line(match[1], match[2], int(match[3]))

    def split(self, domain: DomainFiles, wanted: Collection[str] = ()) -> DomainFiles:
        """Split the domain's files by its two lists.

        The folder decides on an image's class, and not the number in the list. If there
        are `wanted` classes, lines of other classes are ignored. A domain that has a
        split of its own keeps it.

        Raises
        ------
        DataError
            A list is missing or wrong, names an image that does not exist, or names an
            image that the other list names, too.
        """
        if domain.test is not None:
            return domain  # it has its own split
        there = {f"{c}/{Path(path).name}": (c, path) for c, path in domain.train}
        listed = []
        for part in self.layout.parts:
            lines = self.lines(domain.name, part)
            named = {
                f"{line.class_name}/{line.image}"
                for line in lines
                if not wanted or line.class_name in wanted
            }
            absent = sorted(named - there.keys() - set(self.layout.known_errors))
            if absent:
                raise DataError(
                    f"{self.file(domain.name, part)}: the list names {len(absent)} "
                    f"image(s) that are not in {domain.folder}: {shown(absent)}. "
                    f"Restore them, or {_OR_NONE}."
                )
            listed.append(named & there.keys())
        both = listed[0] & listed[1]
        if both:
            files = " and ".join(f"{domain.name}_{p}.txt" for p in self.layout.parts)
            raise DataError(
                f"{self.folder}: {len(both)} image(s) are in both {files}, e.g. "
                f"'{min(both)}'. Restore the lists."
            )
        parts = ([there[key] for key in sorted(part)] for part in listed)
        return DomainFiles(domain.name, domain.folder, *parts)
