"""DomainNet (``data.type: domainnet@ggeur``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from federatedscope_ggeur.data.images.base import ImageDataSet, register_image_reader
from federatedscope_ggeur.data.images.folder import DomainFiles, class_files, numbered
from federatedscope_ggeur.data.images.layout import Layout, shown, subfolders
from federatedscope_ggeur.data.images.lists import OfficialLists
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
    "all: the 345 classes. top10: the ten that FedBN and FedFA use: bird, feather, "
    "headphones, ice_cream, teapot, tiger, whale, windmill, wine_glass and zebra.",
    one_of("all", "top10"),
)


@register_image_reader("domainnet", [_CLASSES])
def read_domainnet(root: str | Path, classes: str = "all") -> ImageDataSet:
    """Read DomainNet, all 345 classes or ten of them, with the official lists if
    present.

    Domains are in alphabetical order: clipart, infograph, painting, quickdraw, real,
    sketch. Some may be missing. Classes have the order of their numbers in the lists.
    Without lists they are sorted in the same way, ignoring case and punctuation. A
    domain may lack classes. (The official training list of painting has no t-shirt.)
    But it must have all ten classes of ``classes: top10``, which are in the order of
    their names.

    Without lists `data.splits` makes the split. FedBN's own lists of the ten classes
    are not read, because they are pickles. So ``top10`` has all images of the official
    lists.

    Raises
    ------
    DataError
        There is no domain, the lists do not fit the files, or one of the ten classes is
        missing.
    """
    wanted = TOP_10 if classes == "top10" else ()
    with _LAYOUT.opened(root) as root:
        folders = _LAYOUT.find_domains(root)
        lists = OfficialLists.find(_LAYOUT, root, _LISTS, _PARTS)
        domains = [_all_files(name, path, wanted) for name, path in folders.items()]
        if lists is not None:
            domains = [lists.split(domain, wanted) for domain in domains]
        if wanted:
            _check_has_all(domains, wanted)
            return numbered("domainnet", root, domains, wanted)
        numbers = _class_numbers(lists, folders)
        order = sorted(
            {c for domain in domains for c in domain.classes},
            key=lambda c: (numbers.get(c, 0), re.sub(r"\W|_", "", c.lower())),
        )
        _log_lacking(domains, order)
        return numbered("domainnet", root, domains, order)


def _all_files(name: str, folder: Path, wanted: Sequence[str]) -> DomainFiles:
    """The image files in a domain's class folders.

    If there are `wanted` classes, only the files of these.
    """
    found = [path for path in subfolders(folder) if not wanted or path.name in wanted]
    files = class_files(folder, found, lambda class_name: class_name)
    return DomainFiles(name, folder, files, None)


def _class_numbers(
    lists: OfficialLists | None, folders: Mapping[str, Path]
) -> dict[str, int]:
    """The number of each class in the lists of the domains in `folders`."""
    numbers: dict[str, int] = {}
    for domain in folders if lists else ():
        for part in _PARTS:
            for line in lists.lines(domain, part):
                before = numbers.setdefault(line.class_name, line.number)
                if before != line.number:
                    raise DataError(
                        f"{lists.file(domain, part)}: class '{line.class_name}' has "
                        f"the number {line.number} here, but {before} in another line. "
                        "Restore the lists."
                    )
    return numbers


def _check_has_all(domains: Sequence[DomainFiles], order: Sequence[str]) -> None:
    for domain in domains:
        lacking = [c for c in order if c not in domain.classes]
        if lacking:
            raise DataError(
                f"{domain.folder}: the folder lacks {shown(lacking)} of the ten "
                "classes of ggeur.domainnet.classes top10. Restore them, or set all."
            )


def _log_lacking(domains: Sequence[DomainFiles], order: Sequence[str]) -> None:
    for domain in domains:
        lacking = [c for c in order if c not in domain.classes]
        if lacking:
            logger.warning(
                "domainnet: %s has no images of %s", domain.folder, shown(lacking)
            )
