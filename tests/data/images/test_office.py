"""Office-Caltech-10, Office-Home and the Office-Home-LDS release."""

import logging

import numpy as np
import pytest
from image_miniatures import draw, draw_tree, write_released_office_home

from federatedscope_ggeur.data import (
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    load_data,
    partition,
    validation_share,
)
from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.published import (
    OFFICE_HOME_CLASSES,
    read_office_caltech,
    read_office_home,
    read_office_home_lds,
)
from federatedscope_ggeur.errors import DataError

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


@pytest.mark.parametrize("below", ["", "office_caltech_10", "Office_Caltech_10"])
@pytest.mark.parametrize(
    "folders",
    [
        ["caltech", "amazon", "webcam", "dslr"],
        ["Caltech10", "Amazon", "Webcam", "DSLR"],
    ],
)
def test_office_caltech(tmp_path, below, folders):
    draw_tree(tmp_path / below, folders, TEN, images=1)
    data = IMAGE_READERS["office_caltech"](tmp_path)
    assert data.class_names == TEN
    names = ["caltech", "amazon", "webcam", "dslr"]
    assert [domain.name for domain in data.domains] == names
    for domain in data.domains:
        assert domain.test is None
        assert domain.train.labels.tolist() == [*range(10)]


def test_office_caltech_made_of_office_31_and_caltech_256(tmp_path, caplog):
    draw_tree(tmp_path / "amazon", ["images"], (*OFFICE_31, "ring_binder", "phone"))
    draw_tree(tmp_path, ["caltech"], CALTECH_256)
    with caplog.at_level(logging.INFO):
        data = read_office_caltech(tmp_path)
    assert data.class_names == TEN
    assert [len(domain.train) for domain in data.domains] == [20, 20]
    assert data.domains[0].train.keys[2] == "caltech/224.touring-bike/pic_000.jpg"
    assert "2 folder(s) are ignored, because" in caplog.text
    assert "'webcam', 'dslr'" in caplog.text


def test_office_caltech_class_under_two_names(tmp_path):
    draw_tree(tmp_path, ["amazon"], ["back_pack", "backpack"])
    with pytest.raises(DataError, match="class 'backpack' has a second folder"):
        read_office_caltech(tmp_path)


#: Images of a domain (Gong et al.), and of these FedBN's training, validation, test.
FEDBN = {
    "caltech": (538, 360, 225),
    "amazon": (459, 307, 192),
    "webcam": (141, 95, 59),
    "dslr": (75, 50, 32),
}
FEDBN_SPLITS = [0.479, 0.321, 0.2]


def _draw_complete(root, domain):
    """As many images as the real domain has, in ten classes of different size."""
    rest, first = sum(FEDBN[domain]), None
    for number, name in enumerate(TEN):
        n = rest if number == 9 else rest // (11 - number)
        for row in range(n):
            path = root / domain / name / f"pic_{row:04}.png"
            if first is None:
                first = draw(path)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(first.read_bytes())
        rest -= n


@pytest.mark.slow
def test_office_caltech_with_the_sizes_of_fedbn(tmp_path):
    for domain in FEDBN:
        _draw_complete(tmp_path / "tree", domain)
    settings = EncodingSettings(
        EncoderSettings("pixels", image_size=1),
        ExtractionSettings(256, 0, 1),
        "cpu",
        str(tmp_path / "cache"),
    )
    data = load_data(
        "office_caltech@ggeur",
        str(tmp_path / "tree"),
        FEDBN_SPLITS,
        0,
        settings,
        {"split": "fedbn"},
    )
    found = partition(
        data,
        client_num=4,
        splitter="iid",
        splitter_args=[],
        seed=0,
        validation=validation_share(FEDBN_SPLITS),
    )
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
    for part in ("train", "test"):
        draw_tree(tmp_path / "dslr", [part], TEN, images=1)
    with pytest.raises(DataError, match=r"dslr: the domain has its own split"):
        read_office_caltech(tmp_path, split="fedbn")


@pytest.mark.parametrize("real", ["Real World", "Real_World", "RealWorld"])
@pytest.mark.parametrize("below", ["", "OfficeHomeDataset_10072016", "Office-Home"])
def test_office_home(tmp_path, real, below):
    draw_tree(tmp_path / below, [*HOME[:3], real], ["TV", "Table", "Bed"], images=2)
    (tmp_path / below / "ImageInfo.csv").write_text("x")
    data = IMAGE_READERS["office_home"](tmp_path)
    names = ["art", "clipart", "product", "real_world"]
    assert [domain.name for domain in data.domains] == names
    assert data.class_names == ("Bed", "TV", "Table")
    assert all(len(domain.train) == 6 for domain in data.domains)
    assert all(domain.test is None for domain in data.domains)


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
    assert (len(OFFICE_HOME_CLASSES), OFFICE_HOME_CLASSES[58:60]) == (
        65,
        ("TV", "Table"),
    )
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


def refuse(reader, root, *parts):
    with pytest.raises(DataError) as caught:
        reader(root)
    for part in parts:
        assert str(part) in str(caught.value)


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
