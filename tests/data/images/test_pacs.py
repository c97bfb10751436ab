"""PACS: its folders, and the official split where its lists are present."""

import logging

import pytest
from image_miniatures import draw, draw_tree

from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.published import read_pacs
from federatedscope_ggeur.errors import DataError

DOMAINS = ["photo", "art_painting", "cartoon", "sketch"]
CLASSES = ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]


def write_lists(folder, domains=DOMAINS, images=3):
    """As published: the last image of each class is for validation."""
    folder.mkdir(parents=True, exist_ok=True)
    for domain in domains:
        lines = [
            [f"{domain}/{name}/pic_{i:03}.jpg {label}\n" for i in range(images)]
            for label, name in enumerate(CLASSES, 1)
        ]
        parts = {
            "train": [line for group in lines for line in group[:-1]],
            "crossval": [group[-1] for group in lines],
            "test": [line for group in lines for line in group],
        }
        for part, text in parts.items():
            (folder / f"{domain}_{part}_kfold.txt").write_text("".join(text))


@pytest.mark.parametrize("below", ["", "pacs_data", "kfold", "PACS", "PACS/kfold"])
def test_every_layout(tmp_path, below):
    draw_tree(tmp_path / below, DOMAINS, CLASSES, images=1)
    data = IMAGE_READERS["pacs"](tmp_path)
    assert data.name == "pacs"
    assert [domain.name for domain in data.domains] == DOMAINS
    assert data.class_names == tuple(CLASSES)
    assert all(domain.test is None for domain in data.domains)
    assert all(domain.train.labels.tolist() == [*range(7)] for domain in data.domains)


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
    draw_tree(tmp_path / images, DOMAINS, CLASSES, images=3)
    write_lists(tmp_path / lists)
    for domain in read_pacs(tmp_path).domains:
        assert (len(domain.train), len(domain.test)) == (14, 7)
        assert domain.test.labels.tolist() == [*range(7)]
        assert all(key.endswith("pic_002.jpg") for key in domain.test.keys)
        # test_kfold holds the training images too.
        assert not set(domain.train.keys) & set(domain.test.keys)


def test_the_folder_decides_on_the_class_not_the_list(tmp_path):
    draw_tree(tmp_path, ["photo"], CLASSES, images=3)
    write_lists(tmp_path, ["photo"])
    path = tmp_path / "photo_crossval_kfold.txt"
    path.write_text(
        path.read_text().replace("horse/pic_002.jpg 5", "horse/pic_002.jpg 1")
    )
    assert read_pacs(tmp_path).domains[0].test.labels.tolist() == [*range(7)]


def test_the_known_error_in_the_lists_is_passed_over(tmp_path):
    draw_tree(tmp_path, ["sketch"], CLASSES, images=3)
    write_lists(tmp_path, ["sketch"])
    with open(tmp_path / "sketch_train_kfold.txt", "a") as file:
        file.write("sketch/dog/n02103406_4068-1.png 1\n")
    assert len(read_pacs(tmp_path).domains[0].train) == 14
    draw(tmp_path / "sketch" / "dog" / "n02103406_4068-1.png")
    assert len(read_pacs(tmp_path).domains[0].train) == 15


def test_images_in_no_list_are_counted(tmp_path, caplog):
    draw_tree(tmp_path, ["photo"], CLASSES, images=4)
    write_lists(tmp_path, ["photo"])
    with caplog.at_level(logging.INFO):
        domain = read_pacs(tmp_path).domains[0]
    assert (len(domain.train), len(domain.test)) == (14, 7)
    assert "7 image(s) of photo are in no list" in caplog.text


def test_folders_of_a_split_need_no_lists(tmp_path):
    for part in ("train", "test"):
        draw_tree(tmp_path / "photo", [part], CLASSES, images=1)
    write_lists(tmp_path, ["photo"])
    domain = read_pacs(tmp_path).domains[0]
    assert (len(domain.train), len(domain.test)) == (7, 7)


def refuse(root, *parts):
    with pytest.raises(DataError) as caught:
        read_pacs(root)
    for part in parts:
        assert str(part) in str(caught.value)


def test_two_places(tmp_path):
    for place in ("PACS", "kfold"):
        draw_tree(tmp_path / place, ["photo"], CLASSES, images=1)
    refuse(tmp_path, tmp_path / "PACS", tmp_path / "kfold", "Set data.root to one")


def test_two_folders_of_one_domain(tmp_path):
    draw_tree(tmp_path, ["art_painting", "Art Painting"], CLASSES, images=1)
    refuse(tmp_path, "'Art Painting', 'art_painting'", "Keep one")


def test_a_missing_list(tmp_path):
    """What else is refused of lists: test_domainnet.py."""
    draw_tree(tmp_path, ["photo", "sketch"], CLASSES, images=3)
    write_lists(tmp_path, ["photo", "sketch"])
    (tmp_path / "sketch_crossval_kfold.txt").unlink()
    refuse(tmp_path, "sketch_crossval_kfold.txt", "missing")
