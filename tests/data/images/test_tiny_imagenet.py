"""Tiny-ImageNet: with its annotations, or with val sorted into folders."""

import shutil

import pytest
from image_miniatures import WNIDS, draw, write_tiny_imagenet

from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.tiny_imagenet import read_tiny_imagenet
from federatedscope_ggeur.errors import DataError

NAMES = ("Egyptian cat", "goldfish", "reel")


@pytest.mark.parametrize("below", ["", "tiny-imagenet-200"])
@pytest.mark.parametrize("train_images", ["images", ""])
@pytest.mark.parametrize("val", ["annotated", "", "images"])
def test_every_layout(tmp_path, below, train_images, val):
    write_tiny_imagenet(tmp_path / below, train_images=train_images, val=val)
    draw(tmp_path / below / "test" / "images" / "test_0.JPEG")
    data = IMAGE_READERS["tiny_imagenet"](tmp_path)
    assert (data.name, data.class_names) == ("tiny_imagenet", NAMES)
    (domain,) = data.domains
    assert domain.name == "tiny_imagenet"
    for part in (domain.train, domain.test):
        assert part.labels.tolist() == [0, 0, 1, 1, 2, 2]  # the order of wnids.txt
        assert part.load(5).mode == "RGB"
    assert f"/{WNIDS[0]}/" in domain.train.keys[0]
    names = {key.rsplit("/", 1)[1] for key in domain.test.keys[:2]}
    assert names == {"val_0.JPEG", "val_1.JPEG"}


def test_sorted_val_beside_what_was_left(tmp_path):
    write_tiny_imagenet(tmp_path, val="")
    (tmp_path / "val" / "images").mkdir()
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tx\n")
    assert len(read_tiny_imagenet(tmp_path).domains[0].test) == 6


def test_annotations_win_while_the_images_are_there(tmp_path):
    write_tiny_imagenet(tmp_path)
    draw(tmp_path / "val" / WNIDS[0] / "val_0.JPEG")
    assert len(read_tiny_imagenet(tmp_path).domains[0].test) == 6


def test_without_the_lists(tmp_path):
    write_tiny_imagenet(tmp_path)
    (tmp_path / "words.txt").unlink()
    assert read_tiny_imagenet(tmp_path).class_names == tuple(WNIDS)
    (tmp_path / "wnids.txt").unlink()
    assert read_tiny_imagenet(tmp_path).class_names == tuple(sorted(WNIDS))


def test_names_that_several_classes_have(tmp_path):
    write_tiny_imagenet(tmp_path)
    lines = [f"{WNIDS[0]}\tcrane, bird\n", f"{WNIDS[1]}\tcrane\n"]
    (tmp_path / "words.txt").write_text("".join(lines))
    names = read_tiny_imagenet(tmp_path).class_names
    assert names == (f"crane ({WNIDS[0]})", f"crane ({WNIDS[1]})", WNIDS[2])


def refuse(root, *parts):
    with pytest.raises(DataError) as caught:
        read_tiny_imagenet(root)
    for part in parts:
        assert str(part) in str(caught.value)


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_missing_part(tmp_path, part):
    write_tiny_imagenet(tmp_path)
    shutil.rmtree(tmp_path / part)
    refuse(tmp_path, "lacks the folders train and val", "'wnids.txt'", "cs231n")


def _append(path, text):
    path.write_text(path.read_text() + text)


def _change(path, old, new):
    path.write_text(path.read_text().replace(old, new))


ANNOTATIONS = "val/val_annotations.txt"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda p: (p / ANNOTATIONS).unlink(), ("val_annotations.txt is missing",)),
        (
            lambda p: (p / "val/images/val_3.JPEG").unlink(),
            ("these images do not exist:", "val_3.JPEG"),
        ),
        (
            lambda p: draw(p / "val/images/val_99.JPEG"),
            ("the file does not name the images", "val_99.JPEG"),
        ),
        (
            lambda p: _append(p / ANNOTATIONS, f"val_0.JPEG\t{WNIDS[1]}\n"),
            ("the file repeats", "val_0.JPEG"),
        ),
        (
            lambda p: (p / ANNOTATIONS).write_text("val_0.JPEG n02124075\n"),
            ("separated by tabs",),
        ),
        (
            lambda p: _change(p / ANNOTATIONS, WNIDS[1], "n00000001"),
            ("'n00000001'", "lacks"),
        ),
    ],
)
def test_annotations_that_do_not_fit(tmp_path, damage, problem):
    write_tiny_imagenet(tmp_path)
    damage(tmp_path)
    refuse(tmp_path, tmp_path / "val", *problem)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([*WNIDS, WNIDS[0]], "repeats 'n02124075'"),
        (WNIDS[1:], "lacks folders of train: 'n02124075'"),
        ([*WNIDS, "n00000001"], "train has no folder for 'n00000001'"),
    ],
)
def test_wnids_that_do_not_fit(tmp_path, lines, problem):
    write_tiny_imagenet(tmp_path)
    (tmp_path / "wnids.txt").write_text("\n".join(lines))
    refuse(tmp_path, tmp_path / "wnids.txt", problem)


def test_empty_class_folder(tmp_path):
    write_tiny_imagenet(tmp_path)
    (tmp_path / "train" / "n00000001" / "images").mkdir(parents=True)
    refuse(tmp_path, tmp_path / "train" / "n00000001" / "images", "no image files")
