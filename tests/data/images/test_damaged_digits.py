"""Damaged files of MNIST, USPS and SVHN are refused by name, never half read."""

import bz2
import gzip

import numpy as np
import pytest
from image_miniatures import (
    pixels,
    write_idx,
    write_mat,
    write_mnist,
    write_svhn,
    write_usps,
)

from federatedscope_ggeur.data.images.digit_images import read_digits
from federatedscope_ggeur.errors import DataError


def refuse(root, *parts):
    with pytest.raises(DataError) as caught:
        read_digits(root)
    for part in parts:
        assert str(part) in str(caught.value)


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (write_mnist, "train-labels-idx1-ubyte"),
        (write_usps, "usps.bz2"),
        (write_svhn, "test_32x32.mat"),
    ],
)
@pytest.mark.parametrize("content", [b"", b"<html>moved</html>"])
def test_damaged_files_are_named_on_reading(tmp_path, write, name, content):
    write(tmp_path)
    (tmp_path / name).write_bytes(content)
    refuse(tmp_path, tmp_path / name, "Fetch the file again")


def test_usps_that_is_cut_off(tmp_path):
    write_usps(tmp_path)
    path = tmp_path / "usps.t.bz2"
    path.write_bytes(path.read_bytes()[:-200])
    refuse(tmp_path, path, "Fetch the file again")


def refuse_to_load(root, path, *parts):
    """Labels are read first, so that damaged pixels show when images are loaded."""
    images = read_digits(root).domains[0].train
    with pytest.raises(DataError) as caught:
        images.load(0)
    for part in (path, *parts):
        assert str(part) in str(caught.value)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_mnist_images_that_are_cut_off(tmp_path, end):
    write_mnist(tmp_path, end)
    path = tmp_path / f"train-images-idx3-ubyte{end}"
    path.write_bytes(path.read_bytes()[:-100])
    refuse_to_load(tmp_path, path, "Fetch the file again")


def test_mnist_images_with_something_behind_them(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes() + b"x")
    refuse_to_load(tmp_path, path, "holds more bytes")


def test_mnist_images_that_are_labels(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    write_idx(path, np.arange(20))
    refuse_to_load(tmp_path, path, "3 dimension(s)")


@pytest.mark.parametrize("n", [19, 21])
def test_fewer_or_more_images_than_labels(tmp_path, n):
    write_mnist(tmp_path, ".gz")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    write_idx(path, pixels(n, 28, 28))
    refuse_to_load(tmp_path, path, f"holds {n} images", "20 labels")


def test_mnist_that_is_no_gzip_file(tmp_path):
    write_mnist(tmp_path, ".gz")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.decompress(path.read_bytes()))
    refuse_to_load(tmp_path, path, "Fetch the file again")


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
    refuse(tmp_path, path)
