"""MNIST, USPS, SVHN and SYN in the formats and places that they come in."""

import bz2
import gzip
import pickle
import shutil

import numpy as np
import pytest
from image_miniatures import (
    draw_tree,
    loaded,
    pixels,
    refuse,
    write_digits,
    write_idx,
    write_mat,
    write_mnist,
    write_svhn,
    write_syn,
    write_usps,
)
from own_process import python
from sklearn.datasets import load_digits

from federatedscope_ggeur.data.images import IMAGE_READERS, bundled_digits
from federatedscope_ggeur.data.images.bundled_digits import (
    imaged_digits,
    read_bundled_digits,
)
from federatedscope_ggeur.data.images.packed import read_digits

NAMES = ["mnist", "usps", "svhn", "syn"]


def only_domain(root):
    (domain,) = read_digits(root).domains
    return domain


def test_all_four(tmp_path):
    write_digits(tmp_path / "Digits")
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
    draw_tree(tmp_path / "mnist", ["train", "test"], "0123456789", images=1)
    write_usps(tmp_path / "usps")
    sizes = [(d.name, len(d.train)) for d in read_digits(tmp_path).domains]
    assert sizes == [("mnist", 10), ("usps", 20)]


def test_loaders_work_in_other_processes(tmp_path):
    write_digits(tmp_path)
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
    refuse(read_digits, tmp_path, f"'{name}' is missing, but there is", "https://")


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_folder(tmp_path, name):
    (tmp_path / name / "raw").mkdir(parents=True)
    refuse(read_digits, tmp_path, tmp_path / name, f"holds no files of '{name}'")


def test_folders_that_are_no_digits(tmp_path):
    draw_tree(tmp_path / "syn", ["train", "test"], ["0", "one"], images=1)
    refuse(read_digits, tmp_path, tmp_path / "syn", "classes 'one'")


# Damaged files of MNIST, USPS and SVHN are refused by name, never half read.


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (write_mnist, "train-labels-idx1-ubyte"),
        (write_usps, "usps.bz2"),
        (write_svhn, "test_32x32.mat"),
    ],
)
@pytest.mark.parametrize("content", [b"", b"<html>moved</html>", "cut off"])
def test_damaged_files_are_named_on_reading(tmp_path, write, name, content):
    write(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-20] if content == "cut off" else content)
    refuse(read_digits, tmp_path, path, "Fetch the file again")


def refuse_to_load(root, path, *parts):
    """Labels are read first, so that damaged pixels show when images are loaded."""
    images = read_digits(root).domains[0].train
    refuse(images.load, 0, path, *parts)


#: The end of the file's name, what becomes of its bytes, and parts of what is said.
SPOILT = {
    "cut off": ("", lambda data: data[:-100], ["Fetch the file again"]),
    "cut off, packed": (".gz", lambda data: data[:-100], ["Fetch the file again"]),
    "something behind": ("", lambda data: data + b"x", ["Fetch the file again"]),
    "labels": ("", np.arange(20), ["3 dimension(s)"]),
    "fewer": (".gz", pixels(19, 28, 28), ["holds 19 images", "20 labels"]),
    "more": (".gz", pixels(21, 28, 28), ["holds 21 images", "20 labels"]),
    "not packed": (".gz", gzip.decompress, ["Fetch the file again"]),
}


@pytest.mark.parametrize("name", SPOILT)
def test_spoilt_images_of_mnist(tmp_path, name):
    end, spoil, said = SPOILT[name]
    write_mnist(tmp_path, end)
    path = tmp_path / f"train-images-idx3-ubyte{end}"
    if callable(spoil):
        path.write_bytes(spoil(path.read_bytes()))
    else:
        write_idx(path, spoil)
    refuse_to_load(tmp_path, path, *said)


@pytest.mark.parametrize("line", ["1 1:2", "1 0:0", "1 257:0", "1 1:x", "1 1"])
def test_usps_lines_that_are_wrong(tmp_path, line):
    write_usps(tmp_path)
    path = tmp_path / "usps.bz2"
    lines = [f"{digit} 1:0" for digit in range(1, 11)]
    path.write_bytes(bz2.compress("\n".join([line, *lines]).encode()))
    refuse_to_load(tmp_path, path)


@pytest.mark.parametrize(
    "changes", [{"X": np.zeros((32, 32, 3, 20))}, {"X": pixels(20, 32, 32)}, {"X": "x"}]
)
def test_svhn_pixels_that_are_no_images(tmp_path, changes):
    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    write_mat(path, np.arange(20) % 10, **changes)
    refuse_to_load(tmp_path, path, "X")


@pytest.mark.parametrize("labels", [[0, 11], [1.5, 2], "none"])
def test_svhn_labels_that_are_no_digits(tmp_path, labels):
    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    write_mat(path, np.arange(2), y=labels)
    refuse(read_digits, tmp_path, path)


# The bundled digits as images.


def grey(images):
    return loaded(images)[..., 0]


def test_four_domains_of_all_digits_whose_pixels_are_the_imaged_ones_in_256_steps():
    data, imaged = IMAGE_READERS["bundled_digits"](""), imaged_digits()
    names = ["clean", "inverted", "blurred", "noisy"]
    assert [domain.name for domain in data.domains] == names
    assert data.grey
    assert sum(len(domain.train) for domain in data.domains) == 1797
    for domain in data.domains:
        images, labels = imaged[domain.name]
        assert domain.test is None
        assert set(labels) == set(range(10))
        assert (domain.train.labels == labels).all()
        assert np.abs(grey(domain.train) / 255 * 16 - images).max() <= 16 / 510 + 1e-9


def test_one_domain_of_the_digits_as_they_are():
    data, digits = read_bundled_digits("", imaging=False), load_digits()
    (domain,) = data.domains
    assert domain.name == "digits"
    assert (domain.train.labels == digits.target).all()
    assert (grey(domain.train) == np.rint(digits.images * 255 / 16)).all()


def test_a_release_of_scikit_learn_that_keeps_them_elsewhere(monkeypatch):
    usual = read_bundled_digits("", imaging=False).domains[0].train
    monkeypatch.setattr(bundled_digits, "_DIGITS_FILE", ("nowhere.csv",))
    other = read_bundled_digits("", imaging=False).domains[0].train
    assert (grey(other) == grey(usual)).all()
    assert (other.labels == usual.labels).all()


@pytest.mark.slow
def test_scikit_learn_is_not_imported_for_them():
    script = (
        "import sys; from federatedscope_ggeur import run; "
        "run('ggeur_quickstart', overrides={'federate.total_round_num': 1}); "
        "assert 'sklearn' not in sys.modules"
    )
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
