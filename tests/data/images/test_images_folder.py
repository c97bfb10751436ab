"""Trees of image files: every layout is read, everything else refused by name.

Tests of data/images/base.py and data/images/layout.py.
"""

import os
import pickle

import numpy as np
import pytest
from image_miniatures import draw, draw_tree

from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.folder import read_image_folder
from federatedscope_ggeur.errors import DataError


def sizes(data):
    return [
        (d.name, len(d.train), None if d.test is None else len(d.test))
        for d in data.domains
    ]


def test_domains_and_classes_are_sorted_by_name(tmp_path):
    draw_tree(tmp_path, ["zoo", "art"], ["dog", "TV", "Table"], images=2)
    data = IMAGE_READERS["image_folder"](tmp_path)
    assert (data.name, data.class_names) == ("image_folder", ("TV", "Table", "dog"))
    assert sizes(data) == [("art", 6, None), ("zoo", 6, None)]
    art = data.domains[0].train
    assert art.labels.dtype == np.int64
    assert art.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert art.keys[0] == "art/TV/pic_000.jpg"
    assert len(set(art.keys)) == 6


def test_images_are_loaded_one_by_one_also_by_another_process(tmp_path):
    for number, name in enumerate("ab"):
        draw(tmp_path / "domain" / name / "x.png", colour=(100 * number, 0, 0))
    images = read_image_folder(str(tmp_path)).domains[0].train
    load = pickle.loads(pickle.dumps(images.load))
    assert [load(row).getpixel((0, 0)) for row in (1, 0)] == [(100, 0, 0), (0, 0, 0)]


def test_nothing_is_loaded_while_reading(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"], images=2)
    (tmp_path / "art" / "dog" / "pic_000.jpg").write_bytes(b"broken")
    images = read_image_folder(tmp_path).domains[0].train
    assert images.load(1).mode == "RGB"
    with pytest.raises(DataError, match="pic_000"):
        images.load(0)


def test_stamps_change_with_size_and_with_time(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"], images=3)
    folder = tmp_path / "art" / "dog"
    before = read_image_folder(tmp_path).domains[0].train.stamps
    with open(folder / "pic_000.jpg", "ab") as file:
        file.write(b"x")
    os.utime(folder / "pic_001.jpg", ns=(5, 5))
    after = read_image_folder(tmp_path).domains[0].train.stamps
    assert [a == b for a, b in zip(before, after)] == [False, False, True]


def test_domains_with_train_and_test(tmp_path):
    draw_tree(tmp_path / "art" / "train", ["dog", "cat"], [""], images=3)
    draw_tree(tmp_path / "art" / "Test", ["cat"], [""], images=1)
    draw_tree(tmp_path, ["photo"], ["cat", "dog"], images=2)
    data = read_image_folder(tmp_path)
    assert sizes(data) == [("art", 6, 1), ("photo", 4, None)]
    assert data.domains[0].test.keys == ("art/Test/cat/pic_000.jpg",)
    assert data.domains[0].test.labels.tolist() == [0]


def test_train_and_test_in_the_root_are_one_domain(tmp_path):
    draw_tree(tmp_path, ["train", "test"], ["dog", "cat"])
    assert sizes(read_image_folder(tmp_path)) == [("all", 4, 4)]


def test_images_between_domain_and_classes(tmp_path):
    draw_tree(tmp_path / "amazon", ["images"], ["bike", "mug"])
    draw_tree(tmp_path, ["dslr"], ["bike", "mug"])
    data = read_image_folder(tmp_path)
    assert sizes(data) == [("amazon", 4, None), ("dslr", 4, None)]
    assert data.class_names == ("bike", "mug")


def test_what_is_no_image_is_passed_over(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"], images=2)
    for name in (".DS_Store", "Thumbs.db", "._pic_000.jpg", "notes.txt"):
        (tmp_path / "art" / "dog" / name).write_bytes(b"x")
    (tmp_path / "art" / "labels.csv").write_text("x")
    (tmp_path / "readme.md").write_text("x")
    for name in (".git", "__MACOSX"):
        draw(tmp_path / name / "dog" / "a.jpg")
        draw(tmp_path / "art" / name / "a.jpg")
    assert sizes(read_image_folder(tmp_path)) == [("art", 2, None)]


@pytest.mark.parametrize("ext", ["JPG", "jpeg", "PNG", "bmp", "webp", "ppm", "tiff"])
def test_extensions_in_any_case(tmp_path, ext):
    draw_tree(tmp_path, ["art"], ["dog"], ext=ext)
    assert sizes(read_image_folder(tmp_path)) == [("art", 2, None)]


def test_linked_files_and_folders_are_followed(tmp_path):
    draw_tree(tmp_path / "store", ["art"], ["dog"])
    root = tmp_path / "root"
    root.mkdir()
    (root / "art").symlink_to(tmp_path / "store" / "art", target_is_directory=True)
    assert read_image_folder(root).domains[0].train.keys[0] == "art/dog/pic_000.jpg"


def test_different_classes_are_listed_by_domain(tmp_path):
    draw_tree(tmp_path, ["art"], ["cat", "dog"])
    draw_tree(tmp_path, ["photo"], ["cat", "Dog", "owl"])
    with pytest.raises(DataError) as caught:
        read_image_folder(tmp_path)
    message = str(caught.value)
    assert "'art'" in message
    assert "lacks 'Dog', 'owl'" in message
    assert "'photo'" in message
    assert "lacks 'dog'" in message


def refuse(root, *parts):
    with pytest.raises(DataError) as caught:
        read_image_folder(root)
    for part in parts:
        assert str(part) in str(caught.value)


def test_empty_class_folder(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"])
    (tmp_path / "art" / "cat").mkdir()
    (tmp_path / "art" / "cat" / "note.txt").write_text("x")
    refuse(tmp_path, tmp_path / "art" / "cat", "no image files", "1 other file")


def test_images_directly_in_the_domain(tmp_path):
    draw(tmp_path / "dog" / "a.jpg")
    refuse(tmp_path, tmp_path / "dog", "no class folders", "but 1 image(s)")


def test_folders_in_a_class(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"])
    draw(tmp_path / "art" / "dog" / "more" / "a.jpg")
    refuse(tmp_path, tmp_path / "art" / "dog", "'more'", "directly")


@pytest.mark.parametrize("extra", [[], ["test", "val"], ["test", "dog"]])
def test_a_split_that_is_not_train_and_test(tmp_path, extra):
    draw_tree(tmp_path / "art", ["train", *extra], ["dog"])
    draw_tree(tmp_path, ["photo"], ["dog"])
    refuse(tmp_path, tmp_path / "art", "'train'", *extra)


@pytest.mark.parametrize("extra", [[], ["val"], ["test", "art"]])
def test_parts_of_a_split_in_the_root_are_no_domains(tmp_path, extra):
    draw_tree(tmp_path, ["train", *extra], ["dog", "cat"])
    refuse(tmp_path, "has the folders", "'train'", "one domain")


def test_broken_link(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"])
    (tmp_path / "art" / "dog" / "z.jpg").symlink_to(tmp_path / "gone.jpg")
    refuse(tmp_path, "z.jpg", "cannot be read")


def test_names_that_are_no_text(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"])
    path = os.path.join(os.fsencode(tmp_path), b"art", b"dog", b"caf\xe9.jpg")
    try:
        os.link(tmp_path / "art" / "dog" / "pic_000.jpg", path)
    except OSError:
        pytest.skip("the file system takes UTF-8 names alone")
    refuse(tmp_path, r"caf\xe9.jpg", "not UTF-8", "Rename")
