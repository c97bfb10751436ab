"""Office-Caltech-10 (``data.type: office_caltech@ggeur``)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from federatedscope_ggeur.data.images.base import ImageDataSet, register_image_reader
from federatedscope_ggeur.data.images.folder import (
    DomainFiles,
    Files,
    data_set,
    read_domain,
)
from federatedscope_ggeur.data.images.layout import Layout, spelling
from federatedscope_ggeur.data.split import stratified_split
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.rng import numpy_generator
from federatedscope_ggeur.settings import Key, one_of

_LAYOUT = Layout(
    name="office_caltech",
    accepted=(
        "<domain>/<class>/<image file> or <domain>/images/<class>/<image file>, with "
        "the domains caltech (or caltech10), amazon, webcam and dslr, directly or in a "
        "folder office_caltech_10 or office_caltech"
    ),
    source=(
        "https://github.com/redhat12345/OfficeCaltechDomainAdaptation (Gong et al., "
        "CVPR 2012)"
    ),
    domains={
        "caltech": ("caltech", "caltech10", "caltech_10"),
        "amazon": ("amazon",),
        "webcam": ("webcam",),
        "dslr": ("dslr",),
    },
    containers=(
        "office_caltech",
        "office_caltech_10",
        "office_caltech10",
        "officecaltech",
        "officecaltech10",
        "images",
    ),
)
#: The ten classes, and their other names in Office-31 and Caltech-256.
_CLASSES = {
    "backpack": ("back_pack",),
    "bike": ("touring_bike",),
    "calculator": (),
    "headphones": ("headphone", "head_phones"),
    "keyboard": ("computer_keyboard",),
    "laptop": ("laptop_computer",),
    "monitor": ("computer_monitor",),
    "mouse": ("computer_mouse",),
    "mug": ("coffee_mug",),
    "projector": ("video_projector",),
}
_CANONICAL = {
    known: name for name, others in _CLASSES.items() for known in (name, *others)
}
#: The classes of Office-31 that are not among the ten.
_OFFICE_31_ONLY = (
    "bike_helmet", "bookcase", "bottle", "desk_chair", "desk_lamp",
    "desktop_computer", "file_cabinet", "letter_tray", "mobile_phone",
    "paper_notebook", "pen", "phone", "printer", "punchers", "ring_binder", "ruler",
    "scissors", "speaker", "stapler", "tape_dispenser", "trash_can",
)  # fmt: skip
#: FedBN's sizes: the images of each domain, and how many of them are for testing.
_FEDBN = {
    "caltech": (1123, 225),
    "amazon": (958, 192),
    "webcam": (295, 59),
    "dslr": (157, 32),
}
_FEDBN_SEED = 0  # part of the split
_SPLIT = Key(
    "split",
    "none",
    "none: data.splits makes the split. fedbn: a fixed split with the test sizes of "
    "FedBN and FedFA: 225, 192, 59 and 32.",
    one_of("none", "fedbn"),
)


@register_image_reader("office_caltech", [_SPLIT])
def read_office_caltech(root: str | Path, split: str = "none") -> ImageDataSet:
    """Read Office-Caltech-10: four domains with ten classes.

    Domains are in the paper's order: caltech, amazon, webcam, dslr. Some may be
    missing. Classes are sorted by name: backpack, bike, calculator, headphones,
    keyboard, laptop, monitor, mouse, mug, projector. The names of Office-31 and
    Caltech-256 are accepted, too (``back_pack``, ``045.computer-keyboard``). The other
    21 classes of Office-31 are ignored. `data.splits` makes the split, unless a domain
    has the folders ``train`` and ``test``.

    With ``split: fedbn`` the test part has the same size as in FedBN (Li et al., ICLR
    2021) and FedFA, every class in proportion. Its images are fixed, but are not those
    of FedBN, whose lists are pickles and are not read. With one client for each domain,
    `data.splits` [0.479, 0.321, 0.2] also gives FedBN's sizes for training and
    validation: 538/360, 459/307, 141/95 and 75/50.

    Raises
    ------
    DataError
        There is no domain, or domains differ in their classes. With ``fedbn``, a domain
        is not complete, or has its own split.
    """
    with _LAYOUT.opened(root) as root:
        folders = _LAYOUT.find_domains(root)
        domains = [
            read_domain(name, folder, _class_of) for name, folder in folders.items()
        ]
        if split == "fedbn":
            domains = [_split_as_fedbn(domain) for domain in domains]
        return data_set("office_caltech", root, domains)


def _split_as_fedbn(domain: DomainFiles) -> DomainFiles:
    paths = [(c, path) for c in sorted(domain.train) for path in domain.train[c]]
    total, tests = _FEDBN[domain.name]
    if domain.test is not None or len(paths) != total:
        problem = "the domain has its own split"
        if domain.test is None:
            problem = f"the folder has {len(paths)} images of the ten classes"
        raise DataError(
            f"{domain.folder}: {problem}, but ggeur.office_caltech.split fedbn divides "
            f"all {total} images of '{domain.name}'. Restore them, or set none."
        )
    _, labels = np.unique([c for c, _ in paths], return_inverse=True)
    rng = numpy_generator(_FEDBN_SEED, "office_caltech", "fedbn", domain.name)
    share = tests / total
    parts: list[Files] = [{}, {}]
    for part, rows in zip(parts, stratified_split(labels, 1 - share, share, rng)):
        for row in rows:
            part.setdefault(paths[row][0], []).append(paths[row][1])
    return DomainFiles(domain.name, domain.folder, *parts)


def _class_of(folder_name: str) -> str | None:
    # Caltech-256 numbers its folders: "127.laptop-101" is its class 127.
    plain = spelling(re.sub(r"^\d+\.|[-_]\d+$", "", folder_name))
    if plain in _OFFICE_31_ONLY:
        return None
    return _CANONICAL.get(plain, folder_name)
