"""Tiny-ImageNet (``data.type: tiny_imagenet@ggeur``)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from federatedscope_ggeur.errors import DataError

from . import layout, trees
from .layout import ImageDataSet, Layout, read_lines, shown, subfolders
from .trees import DomainFiles, Files

_LAYOUT = Layout(
    name="tiny_imagenet",
    accepted="train/<wnid>/images/*.JPEG (or train/<wnid>/*.JPEG), and "
    "val/images/*.JPEG with val/val_annotations.txt (or val/<wnid>/*.JPEG, also with "
    "images between), with wnids.txt and words.txt if there are any",
    source="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    containers=("tiny-imagenet-200", "tiny-imagenet"),
)
_ANNOTATIONS = "val_annotations.txt"


@layout.register_image_reader("tiny_imagenet")
def read_tiny_imagenet(root: str | Path) -> ImageDataSet:
    """Read Tiny-ImageNet: one domain, "tiny_imagenet".

    ``val`` is the test part, because ``test`` has no labels. Class c is line c of
    ``wnids.txt``. Without that file, the folders in ``train`` are sorted by name. The
    name of a class is its first name in ``words.txt``. Without that file, it is the
    wnid.

    Raises
    ------
    DataError
        A part is missing, or the parts differ in their classes.
    """
    with _LAYOUT.opened(root) as root:
        base = next(
            (b for b in _LAYOUT.bases(root) if {"train", "val"} <= _names(b)), None
        )
        if base is None:
            raise _LAYOUT.lacking(root, "lacks the folders train and val")
        train, test = _by_folder(base / "train"), _validation(base / "val")
        domain = DomainFiles("tiny_imagenet", base, train, test)
        known = {wnid for wnid, _ in train}
        wnids = _wnids(base, known)
        strange = domain.classes - known
        _refuse(base / "val", "the folder has classes that train lacks:", strange)
        names = _words(base, wnids)
        return trees.data_set("tiny_imagenet", root, [domain], wnids, names)


def _names(folder: Path) -> set[str]:
    return {path.name for path in subfolders(folder)}


def _by_folder(folder: Path) -> Files:
    """The images of each class, in ``<wnid>/images`` or ``<wnid>``."""
    files: Files = []
    for path in subfolders(folder):
        if path.name == "images":
            continue  # it may be left from sorting the validation images
        inside = path / "images"
        place = inside if inside.is_dir() else path
        files += [(path.name, file) for file in trees.image_files(place)]
    if not files:
        raise _LAYOUT.problem(folder, "the folder has no class folders.")
    return files


def _wnids(base: Path, train: set[str]) -> list[str]:
    path = base / "wnids.txt"
    if not path.is_file():
        return sorted(train)
    wnids = [line[0] for line in _read_table(path)]
    repeated = [wnid for wnid, times in Counter(wnids).items() if times > 1]
    _refuse(path, "the file repeats", repeated)
    _refuse(path, "the file lacks folders of train:", train - set(wnids))
    _refuse(path, "train has no folder for", set(wnids) - train)
    return wnids


def _refuse(where: Path, problem: str, names: Collection[str]) -> None:
    if names:
        raise DataError(
            f"{where}: {problem} {shown(sorted(names))}. Unpack the data set again."
        )


def _validation(folder: Path) -> Files:
    path, images = folder / _ANNOTATIONS, folder / "images"
    to_sort = path.is_file() and images.is_dir() and os.listdir(images)
    if not to_sort and _names(folder) - {"images"}:
        return _by_folder(folder)
    if not path.is_file():
        raise _LAYOUT.problem(folder, f"{_ANNOTATIONS} is missing.")
    there = set(trees.image_files(images)) if images.is_dir() else set()
    listed = [(wnid, str(images / n)) for n, wnid, *_ in _read_table(path, columns=2)]
    times = Counter(file for _, file in listed)
    _refuse(path, "these images do not exist:", times.keys() - there)
    _refuse(path, "the file does not name the images", there - times.keys())
    _refuse(path, "the file repeats", [file for file, n in times.items() if n > 1])
    return sorted(listed)


def _words(base: Path, wnids: list[str]) -> dict[str, str]:
    path = base / "words.txt"
    if not path.is_file():
        return {}
    table = {line[0]: line[1] for line in _read_table(path) if len(line) > 1}
    first = {wnid: table.get(wnid, wnid).split(",")[0].strip() for wnid in wnids}
    times = Counter(first.values())
    return {w: n if times[n] == 1 else f"{n} ({w})" for w, n in first.items()}


def _read_table(path: Path, columns: int = 1) -> list[list[str]]:
    """The lines of a file, split into columns at tabs, without blank lines."""
    table = [line.split("\t") for line in read_lines(path)]
    for line in table:
        if len(line) < columns:
            raise DataError(
                f"{path}: the line '{line[0]}' must have {columns} columns, separated "
                "by tabs. Unpack the data set again."
            )
    return table
