"""Readers of published data sets that are trees of image files.

Each is a `Layout`, and what is its own: Office-Caltech's names of classes and FedBN's
split, Office-Home's second release, DomainNet's ten classes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path

import numpy as np

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.rng import numpy_generator
from federatedscope_ggeur.settings import Key, one_of

from ..split import stratified_split
from . import layout, trees
from .files import is_image_name
from .layout import ImageDataSet, Layout, shown, spelling, subfolders

logger = get_logger(__name__)

_TREE = "<domain>/<class>/<image file>"

_PACS = Layout(
    name="pacs",
    accepted=_TREE,
    source="https://sketchx.eecs.qmul.ac.uk/downloads/ (Li et al., ICCV 2017)",
    domains={"photo": (), "art_painting": ("art",), "cartoon": (), "sketch": ()},
    containers=("PACS", "pacs_data", "kfold", "images", "raw_images"),
    lists=("splits", "pacs_label", "Train val splits and h5py files pre-read"),
    parts=("train_kfold", "crossval_kfold"),
    known_errors=("dog/n02103406_4068-1.png",),
)


@layout.register_image_reader("pacs")
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
    with _PACS.opened(root) as root:
        return trees.data_set("pacs", root, trees.read_domains(_PACS, root))


_OFFICE_CALTECH = Layout(
    name="office_caltech",
    accepted=f"{_TREE} or <domain>/images/<class>/<image file>",
    source="https://github.com/redhat12345/OfficeCaltechDomainAdaptation (Gong et al., "
    "CVPR 2012)",
    domains={"caltech": ("caltech10",), "amazon": (), "webcam": (), "dslr": ()},
    containers=("office_caltech", "office_caltech_10", "images"),
)
#: The ten classes, and their other names in Office-31 and Caltech-256.
_OFFICE_CLASSES = {
    "backpack": "back_pack",
    "bike": "touring_bike",
    "calculator": "calculator",
    "headphones": "headphone",
    "keyboard": "computer_keyboard",
    "laptop": "laptop_computer",
    "monitor": "computer_monitor",
    "mouse": "computer_mouse",
    "mug": "coffee_mug",
    "projector": "video_projector",
}
_CANONICAL = {
    spelling(known): name
    for name, other in _OFFICE_CLASSES.items()
    for known in (name, other)
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


@layout.register_image_reader("office_caltech", [_SPLIT])
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
    with _OFFICE_CALTECH.opened(root) as root:
        domains = trees.read_domains(_OFFICE_CALTECH, root, _office_class)
        if split == "fedbn":
            domains = [_split_as_fedbn(domain) for domain in domains]
        return trees.data_set("office_caltech", root, domains)


def _office_class(folder_name: str) -> str | None:
    # Caltech-256 numbers its folders: "127.laptop-101" is its class 127.
    plain = spelling(re.sub(r"^\d+\.|[-_]\d+$", "", folder_name))
    if plain in map(spelling, _OFFICE_31_ONLY):
        return None
    return _CANONICAL.get(plain, folder_name)


def _split_as_fedbn(domain: trees.DomainFiles) -> trees.DomainFiles:
    files = sorted(domain.train, key=itemgetter(0))
    total, tests = _FEDBN[domain.name]
    if domain.test is not None or len(files) != total:
        problem = "the domain has its own split"
        if domain.test is None:
            problem = f"the folder has {len(files)} images of the ten classes"
        raise DataError(
            f"{domain.folder}: {problem}, but ggeur.office_caltech.split fedbn divides "
            f"all {total} images of '{domain.name}'. Restore them, or set none."
        )
    _, labels = np.unique([name for name, _ in files], return_inverse=True)
    rng = numpy_generator(_FEDBN_SEED, "office_caltech", "fedbn", domain.name)
    share = tests / total
    parts = stratified_split(labels, 1 - share, share, rng)
    train, test = ([files[row] for row in rows] for rows in parts)
    return trees.DomainFiles(domain.name, domain.folder, train, test)


_OFFICE_HOME = Layout(
    name="office_home",
    accepted=f"{_TREE}, or <domain>/{{train,test,client}}/class_<c>_index_<i>.jpg of "
    "Office-Home-LDS's unpacked folders Office-Home-<beta>",
    source="https://www.hemanthdv.org/officeHomeDataset.html (Office-Home) and "
    "https://huggingface.co/datasets/WeiDai-David/Office-Home-LDS (Office-Home-LDS)",
    domains={"art": (), "clipart": (), "product": (), "real_world": ("Real World",)},
    containers=("Office-Home*", "new_dataset", "images"),
)
#: Class c of the release is the c-th of these names. `data_set` sorts them likewise.
OFFICE_HOME_CLASSES = (
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


@layout.register_image_reader("office_home")
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
    return _read_office_home(root, "office_home", ("train", "client"))


@layout.register_image_reader("office_home_lds")
def read_office_home_lds(root: str | Path) -> ImageDataSet:
    """Read the published partition of the Office-Home-LDS release.

    This is like `read_office_home`, but the training part of each domain is ``client``,
    or ``train`` if there is no ``client``. With one client for each domain and
    ``data.splitter: iid``, each client trains on exactly the images that the authors
    gave it.
    """
    return _read_office_home(root, "office_home_lds", ("client", "train"))


def _read_office_home(
    root: str | Path, name: str, preferred: Sequence[str]
) -> ImageDataSet:
    with _OFFICE_HOME.opened(root) as root:
        folders = _OFFICE_HOME.find_domains(root)
        plain = [domain for domain, path in folders.items() if not _is_released(path)]
        if not plain:
            read = partial(_read_released, preferred=preferred)
        elif len(plain) < len(folders):
            raise DataError(
                f"{root}: the domain(s) {shown(plain)} have the layout of Office-Home, "
                "but the other domains have the layout of the Office-Home-LDS release. "
                "Set data.root to one data set alone."
            )
        elif name == "office_home_lds":
            raise _OFFICE_HOME.problem(
                root, "data.root is Office-Home, and not the Office-Home-LDS release."
            )
        else:
            read = trees.read_domain
        domains = [read(domain, path) for domain, path in folders.items()]
        return trees.data_set(name, root, domains)


def _is_released(folder: Path) -> bool:
    """Whether images lie directly in a part's folder, as in the release."""
    return any(
        is_image_name(file)
        for part in subfolders(folder)
        if part.name.lower() in ("train", "client", "test")
        for file in os.listdir(part)
    )


def _read_released(
    name: str, folder: Path, preferred: Sequence[str]
) -> trees.DomainFiles:
    """A domain of the release. It trains on the first of the `preferred` folders."""
    parts = {path.name.lower(): path for path in subfolders(folder)}
    train = next((parts[part] for part in preferred if part in parts), None)
    if train is None or "test" not in parts:
        raise DataError(
            f"{folder}: the folder has {shown(sorted(parts))}, but must have 'test', "
            "and 'train' or 'client'. Unpack the release again."
        )
    return trees.DomainFiles(name, folder, _released(train), _released(parts["test"]))


def _released(folder: Path) -> trees.Files:
    files: trees.Files = []
    for path in trees.image_files(folder):
        match = _RELEASED.fullmatch(os.path.basename(path))
        if match is None or int(match[1]) >= len(OFFICE_HOME_CLASSES):
            raise DataError(
                f"{path}: the name must be class_<c>_index_<i>.jpg with c from 0 to "
                f"{len(OFFICE_HOME_CLASSES) - 1}, as in the Office-Home-LDS release. "
                "Move the file elsewhere."
            )
        files.append((OFFICE_HOME_CLASSES[int(match[1])], path))
    return files


_DOMAINNET = Layout(
    name="domainnet",
    accepted=_TREE,
    source="https://ai.bu.edu/M3SDA/ (Peng et al., ICCV 2019)",
    domains=dict.fromkeys(
        ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"), ()
    ),
    containers=("DomainNet*", "images"),
    lists=("splits", "split", "lists", "txt"),
    parts=("train", "test"),
)
#: The ten classes of FedBN (Li et al., ICLR 2021) and FedFA.
TOP_10 = (
    "bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale",
    "windmill", "wine_glass", "zebra",
)  # fmt: skip
_DOMAINNET_CLASSES = Key(
    "classes",
    "all",
    "all: the 345 classes. top10: the ten that FedBN and FedFA use: bird, feather, "
    "headphones, ice_cream, teapot, tiger, whale, windmill, wine_glass and zebra.",
    one_of("all", "top10"),
)


@layout.register_image_reader("domainnet", [_DOMAINNET_CLASSES])
def read_domainnet(root: str | Path, classes: str = "all") -> ImageDataSet:
    """Read DomainNet, all 345 classes or ten, with the official lists if present.

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
    with _DOMAINNET.opened(root) as root:
        domains = trees.read_domains(
            _DOMAINNET,
            root,
            lambda name: name if name in wanted or not wanted else None,
            wanted,
        )
        order: Sequence[str] = wanted
        if not wanted:
            numbers = _class_numbers(root, domains)
            order = sorted(
                {c for domain in domains for c in domain.classes},
                key=lambda c: (numbers.get(c, 0), re.sub(r"\W|_", "", c.lower())),
            )
        for domain in domains:
            lacking = [c for c in order if c not in domain.classes]
            if lacking and wanted:
                raise DataError(
                    f"{domain.folder}: the folder lacks {shown(lacking)} of the ten "
                    "classes of ggeur.domainnet.classes top10. Restore them, or set "
                    "all."
                )
            if lacking:
                logger.warning(
                    "domainnet: %s has no images of %s", domain.folder, shown(lacking)
                )
        return trees.numbered("domainnet", root, domains, order)


def _class_numbers(root: Path, domains: Sequence[trees.DomainFiles]) -> dict[str, int]:
    """The number of each class in the lists of the domains, if there are any."""
    lists = trees.OfficialLists.find(_DOMAINNET, root)
    numbers: dict[str, int] = {}
    for domain in domains if lists else ():
        for part in _DOMAINNET.parts:
            for line in lists.lines(domain.name, part):
                before = numbers.setdefault(line.class_name, line.number)
                if before != line.number:
                    raise DataError(
                        f"{lists.file(domain.name, part)}: class '{line.class_name}' "
                        f"has the number {line.number} here, but {before} in another "
                        "line. Restore the lists."
                    )
    return numbers
