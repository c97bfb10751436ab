"""Office-Home and the Office-Home-LDS release (``data.type: office_home@ggeur``)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.data.images.base import ImageDataSet, register_image_reader
from federatedscope_ggeur.data.images.files import is_image_name
from federatedscope_ggeur.data.images.folder import (
    DomainFiles,
    Files,
    check_same_classes,
    data_set,
    image_files,
    read_domain,
)
from federatedscope_ggeur.data.images.layout import Layout, shown, subfolders
from federatedscope_ggeur.errors import DataError

_LAYOUT = Layout(
    name="office_home",
    accepted=(
        "<domain>/<class>/<image file>, with the domains Art, Clipart, Product and "
        "'Real World' (or Real_World), directly or in a folder "
        "OfficeHomeDataset_10072016 or Office-Home; or one of the Office-Home-LDS "
        "release's unpacked folders Office-Home-<beta>, with "
        "<domain>/{train,test,client}/class_<c>_index_<i>.jpg"
    ),
    source=(
        "https://www.hemanthdv.org/officeHomeDataset.html (Office-Home) and "
        "https://huggingface.co/datasets/WeiDai-David/Office-Home-LDS (Office-Home-LDS)"
    ),
    domains={
        "art": ("art",),
        "clipart": ("clipart", "clip_art"),
        "product": ("product",),
        "real_world": ("real_world", "realworld"),
    },
    containers=("officehome*", "office_home*", "new_dataset", "images"),
)
#: Class c of the release is the c-th of these names. `data_set` sorts them likewise.
CLASSES = (
    "Alarm_Clock", "Backpack", "Batteries", "Bed", "Bike", "Bottle", "Bucket",
    "Calculator", "Calendar", "Candles", "Chair", "Clipboards", "Computer", "Couch",
    "Curtains", "Desk_Lamp", "Drill", "Eraser", "Exit_Sign", "Fan", "File_Cabinet",
    "Flipflops", "Flowers", "Folder", "Fork", "Glasses", "Hammer", "Helmet",
    "Kettle", "Keyboard", "Knives", "Lamp_Shade", "Laptop", "Marker", "Monitor",
    "Mop", "Mouse", "Mug", "Notebook", "Oven", "Pan", "Paper_Clip", "Pen", "Pencil",
    "Postit_Notes", "Printer", "Push_Pin", "Radio", "Refrigerator", "Ruler",
    "Scissors", "Screwdriver", "Shelf", "Sink", "Sneakers", "Soda", "Speaker",
    "Spoon", "TV", "Table", "Telephone", "ToothBrush", "Toys", "Trash_Can",
    "Webcam",
)  # fmt: skip
_RELEASED = re.compile(r"class_(\d+)_index_\d+\.\w+", re.IGNORECASE)
_PARTS = ("train", "client", "test")


@register_image_reader("office_home")
def read_office_home(root: str | Path) -> ImageDataSet:
    """Read Office-Home as published, or a folder of the Office-Home-LDS release.

    Domains are in the paper's order: art, clipart, product, real_world. Some may be
    missing. Classes are sorted by name (by code point), which is also the release's
    order of its 65 classes.

    Office-Home comes without a split. In the release, each domain has a folder
    ``train`` (70%), the training part, and a folder ``test``, the test part. A third
    folder ``client`` has copies of the images that the published draw of the Dirichlet
    matrix gave to the domain's client. If there is ``train``, ``client`` is not read,
    because ``data.splitter: lds`` draws the matrix itself, for any beta, seed and
    number of clients. (`read_office_home_lds` reads it.) Without ``train``, ``client``
    is the training part.

    Raises
    ------
    DataError
        There is no domain, domains differ in their classes, or the two layouts are
        mixed.
    """
    return _read(root, "office_home", ("train", "client"))


@register_image_reader("office_home_lds")
def read_office_home_lds(root: str | Path) -> ImageDataSet:
    """Read the published partition of the Office-Home-LDS release.

    This is like `read_office_home`, but the training part of each domain is ``client``,
    or ``train`` if there is no ``client``. With one client for each domain and
    ``data.splitter: iid``, each client trains on exactly the images that the authors
    gave it.
    """
    return _read(root, "office_home_lds", ("client", "train"))


def _read(root: str | Path, name: str, preferred: Sequence[str]) -> ImageDataSet:
    with _LAYOUT.opened(root) as root:
        folders = _LAYOUT.find_domains(root)
        released = {domain: _is_released(path) for domain, path in folders.items()}
        if not any(released.values()):
            if name == "office_home_lds":
                raise _LAYOUT.problem(
                    root,
                    "data.root is Office-Home, and not the Office-Home-LDS release.",
                )
            domains = [read_domain(domain, path) for domain, path in folders.items()]
            return data_set(name, root, domains)
        if not all(released.values()):
            plain = [domain for domain in folders if not released[domain]]
            raise DataError(
                f"{root}: the domain(s) {shown(plain)} have the layout of Office-Home, "
                "but the other domains have the layout of the Office-Home-LDS release. "
                "Set data.root to one data set alone."
            )
        return _read_release(root, name, folders, preferred)


def _is_released(folder: Path) -> bool:
    """Whether images lie directly in a part's folder, as in the release."""
    return any(
        is_image_name(file)
        for part in subfolders(folder)
        if part.name.lower() in _PARTS
        for file in os.listdir(part)
    )


def _read_release(
    root: Path, name: str, folders: dict[str, Path], preferred: Sequence[str]
) -> ImageDataSet:
    parts = {domain: _read_parts(folder) for domain, folder in folders.items()}
    # All parts count, because the client's part may lack classes of the domain.
    check_same_classes(
        {
            domain: {c for files in found.values() for c in files}
            for domain, found in parts.items()
        },
        folders,
    )
    domains = []
    for domain, found in parts.items():
        train = next((found[part] for part in preferred if part in found), None)
        if train is None or "test" not in found:
            raise DataError(
                f"{folders[domain]}: the folder has {shown(sorted(found))}, but must "
                "have 'test', and 'train' or 'client'. Unpack the release again."
            )
        domains.append(DomainFiles(domain, folders[domain], train, found["test"]))
    return data_set(name, root, domains)


def _read_parts(folder: Path) -> dict[str, Files]:
    return {
        path.name.lower(): _by_class(path)
        for path in subfolders(folder)
        if path.name.lower() in _PARTS
    }


def _by_class(folder: Path) -> Files:
    found: Files = {}
    for path in image_files(folder):
        match = _RELEASED.fullmatch(os.path.basename(path))
        if match is None or int(match[1]) >= len(CLASSES):
            raise DataError(
                f"{path}: the name must be class_<c>_index_<i>.jpg with c from 0 to "
                f"{len(CLASSES) - 1}, as in the Office-Home-LDS release. Move the file "
                "elsewhere."
            )
        found.setdefault(CLASSES[int(match[1])], []).append(path)
    return found
