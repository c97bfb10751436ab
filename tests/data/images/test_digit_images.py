"""MNIST, USPS, SVHN and SYN in the formats and places that they come in."""

import bz2
import pickle
import shutil

import numpy as np
import pytest
from image_miniatures import (
    draw_tree,
    pixels,
    write_mnist,
    write_svhn,
    write_syn,
    write_usps,
)

from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.digit_images import read_digits
from federatedscope_ggeur.errors import DataError

NAMES = ["mnist", "usps", "svhn", "syn"]


def write_all(root):
    write_mnist(root / "mnist")
    write_usps(root / "usps")
    write_svhn(root / "svhn")
    write_syn(root / "syn")


def loaded(images):
    return np.stack([np.asarray(images.load(row)) for row in range(len(images))])


def only_domain(root):
    (domain,) = read_digits(root).domains
    return domain


def test_all_four(tmp_path):
    write_all(tmp_path / "Digits")
    data = IMAGE_READERS["digits"](tmp_path)
    assert data.name == "digits"
    assert data.class_names == tuple("0123456789")
    assert [domain.name for domain in data.domains] == NAMES
    for domain in data.domains:
        for part in (domain.train, domain.test):
            assert part.labels.dtype == np.int64
            assert part.labels.tolist() == [row % 10 for row in range(20)]
            assert part.load(3).mode == "RGB"
            assert len(set(part.keys)) == 20
            assert len(set(part.stamps)) == 1
    keys = [domain.test.keys[17] for domain in data.domains]
    assert keys == [
        "Digits/mnist/t10k-images-idx3-ubyte#17",
        "Digits/usps/usps.t.bz2#17",
        "Digits/svhn/test_32x32.mat#17",
        "Digits/syn/synth_test_32x32.mat#17",
    ]


@pytest.mark.parametrize("below", ["", "mnist", "MNIST/raw", "MNIST/MNIST/raw"])
@pytest.mark.parametrize(("end", "dot"), [("", "-"), (".gz", "-"), ("", ".")])
def test_mnist_wherever_and_however_it_lies(tmp_path, below, end, dot):
    write_mnist(tmp_path / below, end, dot)
    domain = only_domain(tmp_path)
    assert domain.name == "mnist"
    for part, seed in ((domain.train, 1), (domain.test, 2)):
        expected = pixels(20, 28, 28, seed=seed)[..., None].repeat(3, axis=3)
        assert (loaded(part) == expected).all()


def test_mnist_as_torchvision_reads_it(tmp_path):
    datasets = pytest.importorskip("torchvision.datasets")
    write_mnist(tmp_path / "MNIST" / "raw")
    domain = only_domain(tmp_path)
    for part, train in ((domain.train, True), (domain.test, False)):
        theirs = datasets.MNIST(str(tmp_path), train=train, download=False)
        assert part.labels.tolist() == theirs.targets.tolist()
        assert (loaded(part)[..., 0] == theirs.data.numpy()).all()


@pytest.mark.parametrize("below", ["", "usps", "USPS/raw"])
def test_usps_as_torchvision_reads_it(tmp_path, below):
    datasets = pytest.importorskip("torchvision.datasets")
    write_usps(tmp_path / below)
    domain = only_domain(tmp_path)
    for part, train in ((domain.train, True), (domain.test, False)):
        theirs = datasets.USPS(str(tmp_path / below), train=train, download=False)
        assert part.labels.tolist() == list(theirs.targets)
        assert (loaded(part)[..., 1] == theirs.data).all()


def test_usps_pixels_that_are_left_out_are_zero(tmp_path):
    for name in ("usps.bz2", "usps.t.bz2"):
        (tmp_path / name).write_bytes(bz2.compress(b"1 2:-1 256:1\n"))
    image = loaded(only_domain(tmp_path).train)[0, ..., 0]
    assert (image[0, 0], image[0, 1], image[15, 15]) == (127, 0, 255)


@pytest.mark.parametrize("below", ["", "SVHN", "svhn/raw"])
def test_svhn_as_torchvision_reads_it(tmp_path, below):
    datasets = pytest.importorskip("torchvision.datasets")
    # The originals' checksums do not hold for a miniature.
    files = {split: ["", f"{split}_32x32.mat", None] for split in ("train", "test")}
    miniature = type("SVHN", (datasets.SVHN,), {"split_list": files})
    write_svhn(tmp_path / below)
    domain = only_domain(tmp_path)
    for part, split in ((domain.train, "train"), (domain.test, "test")):
        theirs = miniature(str(tmp_path / below), split=split, download=False)
        assert part.labels.tolist() == theirs.labels.tolist()
        assert (loaded(part) == theirs.data.transpose(0, 2, 3, 1)).all()


@pytest.mark.parametrize("folder", ["syn", "SYN", "SynthDigits", "synthetic_digits"])
@pytest.mark.parametrize("parts", [("train", "test"), ("train", "val"), "kaggle"])
def test_syn_as_image_files(tmp_path, folder, parts):
    parts = ("imgs_train", "imgs_valid") if parts == "kaggle" else parts
    for part, images in zip(parts, (3, 1)):
        draw_tree(tmp_path / folder, [part], "0123456789", images=images, ext="png")
    domain = only_domain(tmp_path)
    assert domain.name == "syn"
    assert domain.train.labels.tolist() == [row // 3 for row in range(30)]
    assert domain.test.labels.tolist() == [*range(10)]
    assert domain.test.keys[9] == f"{folder}/{parts[1]}/9/pic_000.png"


def test_any_domain_as_image_files_beside_packed_ones(tmp_path):
    for part in ("train", "test"):
        draw_tree(tmp_path / "mnist", [part], "0123456789", images=1)
    write_usps(tmp_path / "usps")
    sizes = [(d.name, len(d.train)) for d in read_digits(tmp_path).domains]
    assert sizes == [("mnist", 10), ("usps", 20)]


def test_loaders_work_in_other_processes(tmp_path):
    write_all(tmp_path)
    for domain in read_digits(tmp_path).domains:
        load = domain.train.load
        load.prepare()
        sent = pickle.dumps(load)
        assert len(sent) < 2_000
        assert pickle.loads(sent)(5).tobytes() == load(5).tobytes()


def test_prepared_pixels_outlive_the_files(tmp_path):
    write_svhn(tmp_path / "svhn")
    images = only_domain(tmp_path).train
    before = images.load(4).tobytes()
    images.load.prepare()
    shutil.rmtree(tmp_path / "svhn")
    assert images.load(4).tobytes() == before


def refuse(root, *parts):
    with pytest.raises(DataError) as caught:
        read_digits(root)
    for part in parts:
        assert str(part) in str(caught.value)


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (write_mnist, "t10k-labels-idx1-ubyte"),
        (write_usps, "usps.t.bz2"),
        (write_svhn, "train_32x32.mat"),
        (write_syn, "synth_test_32x32.mat"),
    ],
)
def test_one_file_missing(tmp_path, write, name):
    write(tmp_path)
    (tmp_path / name).unlink()
    refuse(tmp_path, f"'{name}' is missing, but there is", "https://")


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_folder(tmp_path, name):
    (tmp_path / name / "raw").mkdir(parents=True)
    refuse(tmp_path, tmp_path / name, f"holds no files of '{name}'")


def test_folders_that_are_no_digits(tmp_path):
    for part in ("train", "test"):
        draw_tree(tmp_path / "syn", [part], ["0", "one"], images=1)
    refuse(tmp_path, tmp_path / "syn", "classes 'one'")
