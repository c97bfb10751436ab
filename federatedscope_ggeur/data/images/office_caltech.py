"""Office-Caltech-10 (``data.type: office_caltech@ggeur``)."""

from __future__ import annotations

import re
from pathlib import Path

from federatedscope_ggeur.data.images.base import ImageDataSet, register_image_reader
from federatedscope_ggeur.data.images.folder import data_set, read_domain
from federatedscope_ggeur.data.images.layout import Layout, spelling

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
#: The ten classes, and what Office-31 and Caltech-256 call them otherwise.
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


@register_image_reader("office_caltech")
def read_office_caltech(root: str | Path) -> ImageDataSet:
    """Read Office-Caltech-10.

    Domains, those that are there, in the paper's order: caltech, amazon, webcam, dslr,
    in any case. Classes by name: backpack, bike, calculator, headphones, keyboard,
    laptop, monitor, mouse, mug, projector, also under the names that Office-31 and
    Caltech-256 give them (``back_pack``, ``045.computer-keyboard``); the other 21
    classes of Office-31 are passed over. `data.splits` makes the split unless a domain
    consists of ``train`` and ``test``.

    Raises
    ------
    DataError
        No domain found, different classes.
    """
    with _LAYOUT.opened(root) as root:
        folders = _LAYOUT.find_domains(root)
        domains = [
            read_domain(name, folder, _class_of) for name, folder in folders.items()
        ]
        return data_set("office_caltech", root, domains)


def _class_of(folder_name: str) -> str | None:
    # Caltech-256 numbers its folders: "127.laptop-101" is its class 127.
    plain = spelling(re.sub(r"^\d+\.|[-_]\d+$", "", folder_name))
    if plain in _OFFICE_31_ONLY:
        return None
    return _CANONICAL.get(plain, folder_name)
