"""PACS (``data.type: pacs@ggeur``)."""

from __future__ import annotations

from pathlib import Path

from federatedscope_ggeur.data.images.base import ImageDataSet, register_image_reader
from federatedscope_ggeur.data.images.folder import DomainFiles, data_set, read_domain
from federatedscope_ggeur.data.images.layout import Layout
from federatedscope_ggeur.data.images.lists import OfficialLists
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
_PARTS = ("train_kfold", "crossval_kfold")
#: A known mistake in the official lists.
_KNOWN_ERRORS = ("dog/n02103406_4068-1.png",)


@register_image_reader("pacs")
def read_pacs(root: str | Path) -> ImageDataSet:
    """Read PACS, with the official split if its lists are present.

    Domains are in the paper's order: photo, art_painting, cartoon, sketch. Some may be
    missing. Classes are sorted by name, as in the official numbering: dog, elephant,
    giraffe, guitar, horse, house, person.

    With the official lists, ``_train_kfold`` is the training part (90%) and
    ``_crossval_kfold`` the test part (10%). ``_test_kfold`` is not read: it names all
    images of a domain, including the training part, for tests on a domain that nobody
    trained on. The folder decides on an image's class, and not the list. If a domain
    has folders ``{train,test}/<class>``, they are the split. Without lists and such
    folders, `data.splits` makes one.

    Raises
    ------
    DataError
        There is no domain, domains differ in their classes, or lists do not fit the
        files.
    """
    with _LAYOUT.opened(root) as root:
        folders = _LAYOUT.find_domains(root)
        domains = [read_domain(name, folder) for name, folder in folders.items()]
        lists = OfficialLists.find(_LAYOUT, root, _LISTS, _PARTS, _KNOWN_ERRORS)
        if lists is not None:
            domains = [_split_by_lists(domain, lists) for domain in domains]
        return data_set("pacs", root, domains)


def _split_by_lists(domain: DomainFiles, lists: OfficialLists) -> DomainFiles:
    if domain.test is not None:
        logger.info(
            "pacs: the lists are not used, because %s has its own split", domain.folder
        )
        return domain
    split = lists.split(domain)
    before, train, test = (
        sum(map(len, files.values()))
        for files in (domain.train, split.train, split.test or {})
    )
    unused = before - train - test
    if unused:
        logger.info("pacs: %d image(s) of %s are in no list", unused, domain.name)
    return split
