"""What every reader refuses alike: it says what it looked for, and where to get it."""

import pytest
from image_miniatures import draw

from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.errors import DataError

#: Of each layout, a file or folder that is looked for, and places to get it from.
WANTED = {
    "cifar10": ("cifar-10-batches-py", "kriz/cifar"),
    "cifar100": ("cifar-100-python", "kriz/cifar"),
    "digits": (
        *("usps.t.bz2", "train_32x32.mat", "ossci-datasets", "cjlin"),
        *("housenumbers", "synthetic-digits"),
    ),
    "domainnet": ("<domain>_train.txt", "https://"),
    "femnist": ("user_data", "https://"),
    "image_folder": ("<domain>/<class>/<image file>", "<domain>/train/<class>"),
    "office_caltech": ("caltech10", "https://"),
    "office_home": ("Real World", "https://www.hemanthdv.org"),
    "office_home_lds": ("Real World", "huggingface"),
    "pacs": (
        *("art_painting", "pacs_data", "_kfold.txt"),
        "https://sketchx.eecs.qmul.ac.uk",
    ),
    "tiny_imagenet": ("val_annotations.txt", "cs231n"),
}


def test_every_reader_of_files_is_here():
    assert set(WANTED) == set(IMAGE_READERS) - {"bundled_digits"}


@pytest.mark.parametrize("name", WANTED)
def test_a_root_without_it_is_refused(name, tmp_path):
    archive = tmp_path / "empty" / "all of it.zip"
    archive.parent.mkdir()
    archive.write_bytes(b"x")
    for root, problem in (
        (tmp_path / "gone", "does not exist"),
        (draw(tmp_path / "a.jpg"), "is not a folder"),
        (archive.parent, "has no folders" if name == "image_folder" else archive.name),
    ):
        with pytest.raises(DataError) as caught:
            IMAGE_READERS[name](root)
        for part in (root, problem, *WANTED[name]):
            assert str(part) in str(caught.value)
