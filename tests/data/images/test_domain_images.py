"""Images of several domains: their folders, official lists and releases."""

import logging
import shutil

import numpy as np
import pytest
from image_miniatures import (
    DOMAINNET,
    change,
    draw,
    draw_tree,
    placed,
    refuse,
    write_domainnet,
    write_released_office_home,
)
from test_partition import divide

from federatedscope_ggeur.data import load_data, validation_share
from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.published import (
    OFFICE_HOME_CLASSES,
    TOP_10,
    read_domainnet,
    read_office_caltech,
    read_office_home,
    read_office_home_lds,
    read_pacs,
)
from federatedscope_ggeur.errors import DataError

# Office-Caltech-10, Office-Home and the Office-Home-LDS release.


TEN = (
    "backpack", "bike", "calculator", "headphones", "keyboard", "laptop", "monitor",
    "mouse", "mug", "projector",
)  # fmt: skip
OFFICE_31 = ("back_pack", *TEN[1:5], "laptop_computer", *TEN[6:])
CALTECH_256 = (
    "003.backpack", "224.touring-bike", "027.calculator", "101.head-phones",
    "045.computer-keyboard", "127.laptop-101", "046.computer-monitor",
    "047.computer-mouse", "041.coffee-mug", "238.video-projector",
)  # fmt: skip
HOME = ["Art", "Clipart", "Product", "Real World"]


#: Of each data set of folders, what its domains are called, its classes, and where it
#: lies; the folders of its domains may be called otherwise.
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
FOLDERS = {
    "office_caltech": (
        ("caltech", "amazon", "webcam", "dslr"), TEN,
        ("", "office_caltech_10", "Office_Caltech_10"),
    ),
    "office_home": (
        ("art", "clipart", "product", "real_world"), ("Bed", "TV", "Table"),
        ("", "OfficeHomeDataset_10072016", "Office-Home"),
    ),
    "pacs": (
        ("photo", "art_painting", "cartoon", "sketch"), PACS_CLASSES,
        ("", "pacs_data", "kfold", "PACS", "PACS/kfold"),
    ),
}  # fmt: skip
SPELT = {
    "office_caltech": [("Caltech10", "Amazon", "Webcam", "DSLR")],
    "office_home": [
        (*HOME[:3], real) for real in ("Real World", "Real_World", "RealWorld")
    ],
}
PLACES = [
    (name, below, folders)
    for name, (domains, _, places) in FOLDERS.items()
    for below in places
    for folders in (domains, *SPELT.get(name, []))
]


@pytest.mark.parametrize(("name", "below", "folders"), PLACES)
def test_every_layout(tmp_path, name, below, folders):
    domains, classes, _ = FOLDERS[name]
    draw_tree(tmp_path / below, folders, classes[::-1], images=1)
    (tmp_path / below / "ImageInfo.csv").write_text("x")
    data = IMAGE_READERS[name](tmp_path)
    assert (data.name, data.class_names) == (name, classes)
    assert tuple(domain.name for domain in data.domains) == domains
    for domain in data.domains:
        assert domain.test is None
        assert domain.train.labels.tolist() == [*range(len(classes))]


def test_office_caltech_made_of_office_31_and_caltech_256(tmp_path, caplog):
    draw_tree(tmp_path / "amazon", ["images"], (*OFFICE_31, "ring_binder", "phone"))
    draw_tree(tmp_path, ["caltech"], CALTECH_256)
    data = read_office_caltech(tmp_path)
    assert data.class_names == TEN
    assert [len(domain.train) for domain in data.domains] == [20, 20]
    assert data.domains[0].train.keys[2] == "caltech/224.touring-bike/pic_000.jpg"
    assert "'webcam', 'dslr'" in caplog.text


def test_office_caltech_class_under_two_names(tmp_path):
    draw_tree(tmp_path, ["amazon"], ["back_pack", "backpack"])
    refuse(read_office_caltech, tmp_path, "class 'backpack' has a second folder")


#: Images of a domain (Gong et al.), and of these FedBN's training, validation, test.
FEDBN = {
    "caltech": (538, 360, 225),
    "amazon": (459, 307, 192),
    "webcam": (141, 95, 59),
    "dslr": (75, 50, 32),
}
FEDBN_SPLITS = [0.479, 0.321, 0.2]


def _draw_complete(root, domain):
    """As many images as the real domain has, in ten classes, the last of which is
    larger."""
    first = draw(root / domain / TEN[0] / "pic_0.png")
    for row in range(1, sum(FEDBN[domain])):
        path = root / domain / TEN[min(row % 11, 9)] / f"pic_{row}.png"
        shutil.copyfile(first, placed(path))


@pytest.mark.slow
def test_office_caltech_with_the_sizes_of_fedbn(tmp_path, settings):
    for domain in FEDBN:
        _draw_complete(tmp_path / "tree", domain)
    root, options = str(tmp_path / "tree"), {"split": "fedbn"}
    data = load_data("office_caltech@ggeur", root, FEDBN_SPLITS, 0, settings, options)
    found = divide(data, clients=4, validation=validation_share(FEDBN_SPLITS))
    sizes = {c.domain: (len(c.train), len(c.val), len(c.test)) for c in found.clients}
    assert sizes == FEDBN


def test_office_caltech_fixed_split(tmp_path):
    _draw_complete(tmp_path, "dslr")
    (one,), (again,) = (
        read_office_caltech(tmp_path, split="fedbn").domains for _ in range(2)
    )
    assert one.test.keys == again.test.keys
    assert not set(one.test.keys) & set(one.train.keys)
    assert len(one.train) + len(one.test) == 157
    shares = np.bincount(one.test.labels) / np.bincount(
        np.concatenate([one.train.labels, one.test.labels])
    )
    assert np.abs(shares - 32 / 157).max() < 0.08


def test_office_caltech_sizes_need_the_whole_domain(tmp_path):
    draw_tree(tmp_path, ["dslr"], TEN, images=2)
    with pytest.raises(DataError, match=r"has 20 images .* all 157 images of 'dslr'"):
        read_office_caltech(tmp_path, split="fedbn")


def test_office_caltech_split_of_its_own_is_not_split_again(tmp_path):
    draw_tree(tmp_path / "dslr", ["train", "test"], TEN, images=1)
    with pytest.raises(DataError, match=r"dslr: the domain has its own split"):
        read_office_caltech(tmp_path, split="fedbn")


@pytest.mark.parametrize(
    "below", ["", "Office-Home-0.1", "new_dataset/Office-Home-0.5"]
)
def test_release_has_the_classes_of_office_home(tmp_path, below):
    write_released_office_home(
        tmp_path / below, HOME, parts=("train", "test", "client")
    )
    (tmp_path / below / "output_indices" / "Art").mkdir(parents=True)
    data = read_office_home(tmp_path)
    assert data.class_names == OFFICE_HOME_CLASSES
    assert len(OFFICE_HOME_CLASSES) == 65
    assert OFFICE_HOME_CLASSES[58:60] == ("TV", "Table")
    for domain in data.domains:
        assert domain.train.labels.tolist() == [*range(65)]
        assert domain.test.labels.tolist() == [*range(65)]
        assert domain.train.keys[64].endswith("/train/class_64_index_128.jpg")


def test_published_partition_of_the_release(tmp_path):
    write_released_office_home(tmp_path, HOME, parts=("train", "test", "client"))
    data = IMAGE_READERS["office_home_lds"](tmp_path)
    assert data.name == "office_home_lds"
    assert data.class_names == OFFICE_HOME_CLASSES
    for domain in data.domains:
        assert domain.train.labels.tolist() == [*range(0, 65, 2)]
        assert all("/client/" in key for key in domain.train.keys)
        assert len(domain.test) == 65


def test_release_without_train(tmp_path):
    write_released_office_home(tmp_path, HOME[:1], parts=("test", "client"))
    domain = read_office_home(tmp_path).domains[0]
    assert (len(domain.train), len(domain.test)) == (33, 65)


def test_release_without_client(tmp_path):
    write_released_office_home(tmp_path, HOME[:1])
    assert len(read_office_home_lds(tmp_path).domains[0].train) == 65


@pytest.mark.parametrize("parts", [("train", "client"), ("test",)])
def test_incomplete_release(tmp_path, parts):
    write_released_office_home(tmp_path, HOME[:1], classes=3, parts=parts)
    refuse(read_office_home, tmp_path, tmp_path / "Art", "'test', and 'train' or")


@pytest.mark.parametrize("name", ["class_65_index_1.jpg", "photo.jpg"])
def test_strange_names_in_the_release(tmp_path, name):
    write_released_office_home(tmp_path, HOME[:1], classes=3)
    draw(tmp_path / "Art" / "train" / name)
    refuse(read_office_home, tmp_path, tmp_path / "Art" / "train" / name, "0 to 64")


def test_release_with_different_classes(tmp_path):
    write_released_office_home(tmp_path, HOME[:1], classes=3)
    write_released_office_home(tmp_path, HOME[1:2], classes=2)
    refuse(read_office_home, tmp_path, "'clipart'", "lacks 'Batteries'")


def test_release_mixed_with_plain_folders(tmp_path):
    write_released_office_home(tmp_path, HOME[:1], classes=2)
    draw_tree(tmp_path, HOME[1:2], OFFICE_HOME_CLASSES[:2])
    refuse(read_office_home, tmp_path, "'clipart'", "one data set alone")


def test_several_releases_at_once(tmp_path):
    for beta in ("0.1", "0.5"):
        place = tmp_path / "new_dataset" / f"Office-Home-{beta}"
        write_released_office_home(place, HOME[:1], classes=2)
    refuse(
        read_office_home, tmp_path, "Office-Home-0.1", "Office-Home-0.5", "data.root"
    )


def test_office_home_is_not_its_release(tmp_path):
    draw_tree(tmp_path, HOME, OFFICE_HOME_CLASSES[:2], images=1)
    refuse(read_office_home_lds, tmp_path, "not the Office-Home-LDS", "huggingface")


# DomainNet: folders, official lists, the ten classes of FedBN.


# The official numbers: sorted without regard to case and punctuation.
CLASSES = [
    ("aircraft_carrier", 0), ("tent", 307), ("The_Eiffel_Tower", 308), ("tiger", 311),
    ("trumpet", 326), ("t-shirt", 327), ("zebra", 343),
]  # fmt: skip
NAMES = tuple(name for name, _ in CLASSES)


@pytest.mark.parametrize("lists", ["", "splits", "txt"])
@pytest.mark.parametrize("below", ["", "DomainNet"])
def test_official_lists(tmp_path, below, lists):
    (tmp_path / below).mkdir(exist_ok=True)
    write_domainnet(tmp_path / below, CLASSES, lists=lists)
    data = IMAGE_READERS["domainnet"](tmp_path)
    assert [domain.name for domain in data.domains] == DOMAINNET
    assert data.class_names == NAMES
    for domain in data.domains:
        assert domain.train.labels.tolist() == [c for c in range(7) for _ in range(3)]
        assert domain.test.labels.tolist() == [*range(7)]
        assert domain.test.keys[1].endswith(f"{domain.name}/tent/pic_003.jpg")


def test_the_lists_decide_on_numbers_and_on_what_is_used(tmp_path):
    write_domainnet(tmp_path, [("zebra", 0), ("ant", 1)], ["real"])
    draw(tmp_path / "real" / "zebra" / "in_no_list.jpg")
    (domain,) = (data := read_domainnet(tmp_path)).domains
    assert data.class_names == ("zebra", "ant")
    assert len(domain.train) + len(domain.test) == 8


def test_without_lists_the_order_is_theirs_and_data_splits_divides(tmp_path):
    draw_tree(tmp_path, DOMAINNET[:2], NAMES[::-1], images=2)
    data = read_domainnet(tmp_path)
    assert data.class_names == NAMES
    assert [(len(d.train), d.test) for d in data.domains] == [(14, None)] * 2


@pytest.mark.parametrize("with_lists", [True, False])
def test_ten_classes(tmp_path, with_lists):
    others = [("ant", 5), ("zigzag", 344)]
    classes = [(name, 10 * number) for number, name in enumerate(TOP_10, start=1)]
    write_domainnet(tmp_path, [*classes, *others], ["real", "sketch"])
    shutil.rmtree(tmp_path / "real" / "ant")  # only the ten need be there
    if not with_lists:
        for path in tmp_path.glob("*.txt"):
            path.unlink()
    data = read_domainnet(tmp_path, classes="top10")
    assert data.class_names == (
        "bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale",
        "windmill", "wine_glass", "zebra",
    )  # fmt: skip
    for domain in data.domains:
        assert set(domain.train.labels) == set(range(10))
        assert len(domain.train) == (30 if with_lists else 40)


def test_a_domain_may_lack_a_class_but_not_one_of_the_ten(tmp_path, caplog):
    classes = [(name, number) for number, name in enumerate(TOP_10)]
    write_domainnet(tmp_path, classes, ["painting", "real"])
    for part in ("train", "test"):
        path = tmp_path / f"painting_{part}.txt"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if "teapot" not in line))
    with caplog.at_level(logging.WARNING):
        data = read_domainnet(tmp_path)
    assert data.class_names == TOP_10
    assert 4 not in data.domains[0].train.labels
    assert "painting has no images of 'teapot'" in caplog.text
    said = "painting: the folder lacks 'teapot' of the ten"
    with pytest.raises(DataError, match=said):
        read_domainnet(tmp_path, classes="top10")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", r"real_test\.txt: .* missing, but"),
        ("pic_003", "pic_001", r"7 image\(s\) are in both real_train\.txt and real_te"),
        ("pic_003", "pic_9", r"names 7 image\(s\) that .*carrier/pic_9\.jpg'"),
        (" 307", " 12", "class 'tent' has the number 12 here, but 307 in another"),
        (" 307", "", r"'real/tent/pic_003\.jpg' has not the form '<domain>/<class>"),
        (None, "", r"names no images\. Restore"),
    ],
)
def test_lists_that_do_not_fit(tmp_path, old, new, message):
    write_domainnet(tmp_path, CLASSES, ["real"])
    path = tmp_path / "real_test.txt"
    if old == "":
        path.unlink()
    else:
        change(path, path.read_text() if old is None else old, new)
    with pytest.raises(DataError, match=message):
        read_domainnet(tmp_path)


# PACS: its folders, and the official split where its lists are present.


DOMAINS = FOLDERS["pacs"][0]


def write_lists(folder, domains=DOMAINS):
    """As published: the last of three images of each class is for validation."""
    folder.mkdir(parents=True, exist_ok=True)
    for domain in domains:
        lines = [
            [f"{domain}/{name}/pic_{i:03}.jpg {label}\n" for i in range(3)]
            for label, name in enumerate(PACS_CLASSES, 1)
        ]
        parts = {
            "train": [line for group in lines for line in group[:-1]],
            "crossval": [group[-1] for group in lines],
            "test": [line for group in lines for line in group],
        }
        for part, text in parts.items():
            (folder / f"{domain}_{part}_kfold.txt").write_text("".join(text))


@pytest.mark.parametrize(
    ("images", "lists"),
    [
        ("", ""),
        ("pacs_data", "pacs_data"),
        ("kfold", "pacs_label"),
        ("PACS/kfold", "PACS/Train val splits and h5py files pre-read"),
        ("pacs/images", "pacs/splits"),
    ],
)
def test_official_split(tmp_path, images, lists):
    draw_tree(tmp_path / images, DOMAINS, PACS_CLASSES, images=3)
    write_lists(tmp_path / lists)
    for domain in read_pacs(tmp_path).domains:
        assert (len(domain.train), len(domain.test)) == (14, 7)
        assert domain.test.labels.tolist() == [*range(7)]
        assert all(key.endswith("pic_002.jpg") for key in domain.test.keys)
        # test_kfold holds the training images too.
        assert not set(domain.train.keys) & set(domain.test.keys)


def test_the_folder_decides_on_the_class_not_the_list(tmp_path):
    draw_tree(tmp_path, ["photo"], PACS_CLASSES, images=3)
    write_lists(tmp_path, ["photo"])
    path = tmp_path / "photo_crossval_kfold.txt"
    change(path, "horse/pic_002.jpg 5", "horse/pic_002.jpg 1")
    assert read_pacs(tmp_path).domains[0].test.labels.tolist() == [*range(7)]


def test_the_known_error_in_the_lists_is_passed_over(tmp_path):
    draw_tree(tmp_path, ["sketch"], PACS_CLASSES, images=3)
    write_lists(tmp_path, ["sketch"])
    with open(tmp_path / "sketch_train_kfold.txt", "a") as file:
        file.write("sketch/dog/n02103406_4068-1.png 1\n")
    assert len(read_pacs(tmp_path).domains[0].train) == 14
    draw(tmp_path / "sketch" / "dog" / "n02103406_4068-1.png")
    assert len(read_pacs(tmp_path).domains[0].train) == 15


def test_folders_of_a_split_need_no_lists(tmp_path):
    draw_tree(tmp_path / "photo", ["train", "test"], PACS_CLASSES, images=1)
    write_lists(tmp_path, ["photo"])
    domain = read_pacs(tmp_path).domains[0]
    assert (len(domain.train), len(domain.test)) == (7, 7)


def test_two_places(tmp_path):
    for place in ("PACS", "kfold"):
        draw_tree(tmp_path / place, ["photo"], PACS_CLASSES, images=1)
    refuse(
        read_pacs,
        tmp_path,
        tmp_path / "PACS",
        tmp_path / "kfold",
        "Set data.root to one",
    )


def test_two_folders_of_one_domain(tmp_path):
    draw_tree(tmp_path, ["art_painting", "Art Painting"], PACS_CLASSES, images=1)
    refuse(read_pacs, tmp_path, "'Art Painting', 'art_painting'", "Keep one")
