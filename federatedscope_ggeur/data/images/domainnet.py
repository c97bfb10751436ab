"""DomainNet (``data.type: domainnet@ggeur``)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from federatedscope_ggeur.data.images.base import (
    ImageDataSet,
    ImageDomain,
    register_image_reader,
)
from federatedscope_ggeur.data.images.folder import (
    DomainFiles,
    Files,
    class_files,
    images_of,
)
from federatedscope_ggeur.data.images.layout import (
    Layout,
    read_lines,
    shown,
    spelling,
    subfolders,
)
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.settings import Key, one_of

logger = get_logger(__name__)

_LAYOUT = Layout(
    name="domainnet",
    accepted=(
        "<domain>/<class>/<image file>, with the domains clipart, infograph, painting, "
        "quickdraw, real and sketch, directly or in a folder DomainNet; beside them, "
        "or in a folder splits, split, lists or txt, the official lists "
        "<domain>_train.txt and <domain>_test.txt if there are any"
    ),
    source="https://ai.bu.edu/M3SDA/ (Peng et al., ICCV 2019)",
    domains={
        "clipart": ("clipart",),
        "infograph": ("infograph",),
        "painting": ("painting",),
        "quickdraw": ("quickdraw",),
        "real": ("real",),
        "sketch": ("sketch",),
    },
    containers=("domainnet", "domain_net", "domainnet_*", "images"),
)
_LISTS = ("splits", "split", "lists", "txt")
_PARTS = ("train", "test")
#: The ten classes of FedBN (Li et al., ICLR 2021) and FedFA.
TOP_10 = (
    "bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale",
    "windmill", "wine_glass", "zebra",
)  # fmt: skip
_CLASSES = Key(
    "classes",
    "all",
    "all: the 345 classes; top10: bird, feather, headphones, ice_cream, teapot, tiger, "
    "whale, windmill, wine_glass and zebra, as FedBN and FedFA take them.",
    one_of("all", "top10"),
)


@register_image_reader("domainnet", [_CLASSES])
def read_domainnet(root: str | Path, classes: str = "all") -> ImageDataSet:
    """Read DomainNet, all 345 classes or ten, with the official lists if present.

    Domains, those that are there, in alphabetical order: clipart, infograph, painting,
    quickdraw, real, sketch. Classes have the order of their numbers in the lists;
    without lists they are sorted as there, without regard to case and punctuation.
    A domain may lack classes (the official training list of painting has no t-shirt),
    but none of the ten of ``classes: top10``, which come in the order of their names.

    Without any list `data.splits` makes the split. FedBN's own lists of the ten classes
    are pickles, which are not read; ``top10`` has all images that the official ones
    name.

    Raises
    ------
    DataError
        No domain found, lists that do not fit the files, one of the ten classes
        missing.
    """
    wanted = TOP_10 if classes == "top10" else None
    with _LAYOUT.opened(root) as root:
        folders = _LAYOUT.find_domains(root)
        lists = _list_folder(root)
        numbers: dict[str, int] = {}
        if lists is None:
            domains = [_all_files(name, path, wanted) for name, path in folders.items()]
        else:
            domains = [
                _listed_files(name, path, lists, wanted, numbers)
                for name, path in folders.items()
            ]
        if wanted is None:
            order = sorted(
                {c for domain in domains for c in domain.classes},
                key=lambda c: (numbers.get(c, 0), re.sub(r"\W|_", "", c.lower())),
            )
            _log_lacking(domains, order)
        else:
            order = list(wanted)
            _check_has_all(domains, order)
        made = [_as_domain(root, domain, order) for domain in domains]
        return ImageDataSet("domainnet", made, tuple(order))


def _as_domain(root: Path, domain: DomainFiles, order: Sequence[str]) -> ImageDomain:
    train = images_of(root, domain.train, order)
    test = None if domain.test is None else images_of(root, domain.test, order)
    return ImageDomain(domain.name, train, test)


def _all_files(name: str, folder: Path, wanted: Sequence[str] | None) -> DomainFiles:
    """A domain without lists: the image files in its class folders."""
    found = [
        path for path in subfolders(folder) if wanted is None or path.name in wanted
    ]
    files = class_files(folder, found, lambda class_name: class_name)
    return DomainFiles(name, folder, files, None)


def _list_folder(root: Path) -> Path | None:
    for base in _LAYOUT.bases(root):
        inside = [path for path in subfolders(base) if spelling(path.name) in _LISTS]
        for folder in (base, *inside):
            if any(
                _list(folder, d, p).is_file() for d in _LAYOUT.domains for p in _PARTS
            ):
                return folder
    return None


def _list(folder: Path, domain: str, part: str) -> Path:
    return folder / f"{domain}_{part}.txt"


def _listed_files(
    name: str,
    folder: Path,
    lists: Path,
    wanted: Sequence[str] | None,
    numbers: dict[str, int],
) -> DomainFiles:
    """What a domain's two lists name; the classes' numbers are added to `numbers`."""
    train, test = (
        _read_list(_list(lists, name, part), folder, wanted, numbers) for part in _PARTS
    )
    both = {path for files in train.values() for path in files} & {
        path for files in test.values() for path in files
    }
    if both:
        raise DataError(
            f"{lists}: {len(both)} image(s) stand in both {name}_train.txt and "
            f"{name}_test.txt, e.g. '{min(both)}'. Restore the lists."
        )
    return DomainFiles(name, folder, train, test)


def _read_list(
    file: Path,
    folder: Path,
    wanted: Sequence[str] | None,
    numbers: dict[str, int],
) -> Files:
    """The files by class of a list's lines ``<domain>/<class>/<file> <number>``."""
    if not file.is_file():
        raise DataError(
            f"{file}: missing, while {file.parent} holds other official lists. Restore "
            "it, or move all lists elsewhere to split by data.splits."
        )
    found: dict[str, set[str]] = {}
    for line in read_lines(file):
        match = re.fullmatch(r"(?:.*/)?([^/]+)/([^/]+)\s+(\d+)", line)
        if match is None:
            raise DataError(
                f"{file}: '{line[:80]}' is no line '<domain>/<class>/<file> <number>'. "
                "Restore the list."
            )
        name, number = match[1], int(match[3])
        if numbers.setdefault(name, number) != number:
            raise DataError(
                f"{file}: class '{name}' has the number {number} here, and "
                f"{numbers[name]} before. Restore the lists."
            )
        if wanted is None or name in wanted:
            found.setdefault(name, set()).add(match[2])
    if not found:
        of_them = "" if wanted is None else " of the ten classes"
        raise DataError(f"{file}: names no images{of_them}. Restore it.")
    _check_there(file, folder, found)
    return {
        name: [os.path.join(folder, name, image) for image in sorted(images)]
        for name, images in found.items()
    }


def _check_there(file: Path, folder: Path, found: Mapping[str, set[str]]) -> None:
    absent = []
    for name, images in sorted(found.items()):
        place = folder / name
        there = set(os.listdir(place)) if place.is_dir() else set()
        absent += [f"{name}/{image}" for image in sorted(images - there)]
    if absent:
        raise DataError(
            f"{file}: names {len(absent)} image(s) that are not in {folder}: "
            f"{shown(absent)}. Restore them, or move the lists elsewhere to split by "
            "data.splits."
        )


def _check_has_all(domains: Sequence[DomainFiles], order: Sequence[str]) -> None:
    for domain in domains:
        lacking = [c for c in order if c not in domain.classes]
        if lacking:
            raise DataError(
                f"{domain.folder}: lacks {shown(lacking)} of the ten classes of "
                "ggeur.domainnet.classes top10. Restore them, or take all."
            )


def _log_lacking(domains: Sequence[DomainFiles], order: Sequence[str]) -> None:
    for domain in domains:
        lacking = [c for c in order if c not in domain.classes]
        if lacking:
            logger.warning(
                "domainnet: %s has no images of %s", domain.folder, shown(lacking)
            )
