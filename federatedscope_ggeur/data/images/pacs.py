"""PACS (``data.type: pacs@ggeur``)."""

from __future__ import annotations

from pathlib import Path

from federatedscope_ggeur.data.images.base import ImageDataSet, register_image_reader
from federatedscope_ggeur.data.images.folder import (
    DomainFiles,
    Files,
    data_set,
    read_domain,
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

logger = get_logger(__name__)

_LAYOUT = Layout(
    name="pacs",
    accepted=(
        "<domain>/<class>/<image file>, with the domains photo, art_painting, cartoon "
        "and sketch, directly or in a folder PACS, pacs_data, kfold, images or "
        "raw_images; beside them, or in a folder splits, pacs_label or 'Train val "
        "splits and h5py files pre-read', the official lists "
        "<domain>_{train,crossval}_kfold.txt if there are any"
    ),
    source="https://sketchx.eecs.qmul.ac.uk/downloads/ (Li et al., ICCV 2017)",
    domains={
        "photo": ("photo",),
        "art_painting": ("art_painting", "artpainting", "art"),
        "cartoon": ("cartoon",),
        "sketch": ("sketch",),
    },
    containers=("pacs", "pacs_data", "kfold", "images", "raw_images"),
)
_LISTS = ("splits", "pacs_label", "train_val_splits_and_h5py_files_pre_read")
_TRAIN, _TEST = "train_kfold", "crossval_kfold"
#: An error in the official lists, known to users of PACS.
_KNOWN_ERRORS = frozenset(("sketch/dog/n02103406_4068-1.png",))


@register_image_reader("pacs")
def read_pacs(root: str | Path) -> ImageDataSet:
    """Read PACS, with the official split where its lists are present.

    Domains, those that are there, in the paper's order: photo, art_painting, cartoon,
    sketch. Classes by name, which is the official numbering: dog, elephant, giraffe,
    guitar, horse, house, person.

    With the official lists, ``_train_kfold`` is the training part (90%) and
    ``_crossval_kfold`` the test part (10%). ``_test_kfold`` is not read: it names all
    images of a domain, those of the training part too, for testing on a domain that was
    not trained on. The folder decides on an image's class, not the list. A domain of
    ``{train,test}/<class>`` folders is split by them instead, and one without lists or
    such folders by `data.splits`.

    Raises
    ------
    DataError
        No domain found, different classes, lists that do not fit the files.
    """
    with _LAYOUT.opened(root) as root:
        folders = _LAYOUT.find_domains(root)
        domains = [read_domain(name, folder) for name, folder in folders.items()]
        lists = _list_folder(root)
        if lists is not None:
            domains = [_split_by_lists(domain, lists) for domain in domains]
        return data_set("pacs", root, domains)


def _list_folder(root: Path) -> Path | None:
    for base in _LAYOUT.bases(root):
        inside = [path for path in subfolders(base) if spelling(path.name) in _LISTS]
        for folder in (base, *inside):
            if any(_has_list(folder, domain) for domain in _LAYOUT.domains):
                return folder
    return None


def _has_list(folder: Path, domain: str) -> bool:
    return (folder / f"{domain}_{_TRAIN}.txt").is_file()


def _split_by_lists(domain: DomainFiles, lists: Path) -> DomainFiles:
    if domain.test is not None:
        logger.info("pacs: %s has its own split; no lists used", domain.folder)
        return domain
    paths = {
        f"{domain.name}/{name}/{Path(path).name}": (name, path)
        for name, files in domain.train.items()
        for path in files
    }
    listed = [_read_list(lists, domain.name, part, paths) for part in (_TRAIN, _TEST)]
    both = listed[0].keys() & listed[1].keys()
    if both:
        raise DataError(
            f"{lists}: {len(both)} image(s) stand in both {domain.name}_{_TRAIN}.txt "
            f"and {domain.name}_{_TEST}.txt, e.g. '{min(both)}'. Restore the lists."
        )
    unused = len(paths) - len(listed[0]) - len(listed[1])
    if unused:
        logger.info("pacs: %d image(s) of %s are in no list", unused, domain.name)
    train, test = (_by_class(part) for part in listed)
    return DomainFiles(domain.name, domain.folder, train, test)


def _by_class(listed: dict[str, tuple[str, str]]) -> Files:
    found: Files = {}
    for _, (name, path) in sorted(listed.items()):
        found.setdefault(name, []).append(path)
    return found


def _read_list(
    lists: Path, domain: str, part: str, paths: dict[str, tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """Those of `paths` that ``<domain>_<part>.txt`` names: ``<path> <label>`` lines."""
    file = lists / f"{domain}_{part}.txt"
    if not file.is_file():
        raise DataError(
            f"{file}: missing, while {lists} holds other lists of the official split. "
            "Restore it, or move all lists elsewhere to split by data.splits."
        )
    listed = [line.rsplit(None, 1)[0].strip() for line in read_lines(file)]
    if not listed:
        raise DataError(f"{file}: names no images. Restore it.")
    absent = [path for path in listed if path not in paths]
    if set(absent) - _KNOWN_ERRORS:
        absent = sorted(set(absent) - _KNOWN_ERRORS)
        raise DataError(
            f"{file}: names {len(absent)} image(s) that are not there: "
            f"{shown(absent)}. Restore them, or move the lists elsewhere to split by "
            "data.splits."
        )
    return {path: paths[path] for path in listed if path in paths}
