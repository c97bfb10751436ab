"""CIFAR-10 and CIFAR-100, and pickles that want to run something.

Tests of data/images/arrays.py and data/images/cifar.py.
"""

import os
import pickle

import numpy as np
import pytest
from image_miniatures import (
    CIFAR10_NAMES,
    cifar_batch,
    draw_tree,
    pixels,
    write_cifar10,
    write_cifar100,
    write_pickle,
)

from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.cifar import read_cifar10, read_cifar100
from federatedscope_ggeur.errors import DataError

PYTHON_10, PYTHON_100 = "cifar-10-batches-py", "cifar-100-python"


def loaded(images):
    return np.stack([np.asarray(images.load(row)) for row in range(len(images))])


@pytest.mark.parametrize("below", ["", PYTHON_10, f"cifar10/{PYTHON_10}", "CIFAR-10"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_cifar10(tmp_path, below, protocol):
    write_cifar10(tmp_path / below, protocol)
    data = IMAGE_READERS["cifar10"](tmp_path)
    assert data.name == "cifar10"
    assert data.class_names == tuple(CIFAR10_NAMES)
    (domain,) = data.domains
    assert domain.name == "cifar10"
    assert domain.train.labels.tolist() == [
        b + row for b in range(5) for row in range(4)
    ]
    assert domain.test.labels.tolist() == [5, 6, 7, 8]
    prefix = f"{below}/" if below else ""
    assert domain.train.keys[6] == f"{prefix}data_batch_2#2"
    assert len(set(domain.train.stamps)) == 5
    expected = pixels(4, 3072, seed=1)[2].reshape(3, 32, 32).transpose(1, 2, 0)
    image = domain.train.load(6)
    assert image.mode == "RGB"
    assert (np.asarray(image) == expected).all()
    sent = pickle.dumps(domain.train.load)
    assert len(sent) < 2_000
    assert pickle.loads(sent)(6).tobytes() == image.tobytes()


@pytest.mark.parametrize(
    ("name", "write", "folder"),
    [("CIFAR10", write_cifar10, PYTHON_10), ("CIFAR100", write_cifar100, PYTHON_100)],
)
def test_as_torchvision_reads_it(tmp_path, name, write, folder):
    original = getattr(pytest.importorskip("torchvision.datasets"), name)

    unchecked = {  # the originals' checksums do not hold for a miniature
        "train_list": [[file, None] for file, _ in original.train_list],
        "test_list": [[file, None] for file, _ in original.test_list],
        "meta": {**original.meta, "md5": None},
    }
    miniature = type(name, (original,), unchecked)
    write(tmp_path / folder)
    data = IMAGE_READERS[name.lower()](tmp_path)
    (domain,) = data.domains
    for part, train in ((domain.train, True), (domain.test, False)):
        theirs = miniature(str(tmp_path), train=train, download=False)
        assert part.labels.tolist() == list(theirs.targets)
        assert (loaded(part) == theirs.data).all()
        assert list(data.class_names) == list(theirs.classes)


def test_cifar100_has_the_fine_labels(tmp_path):
    write_cifar100(tmp_path / PYTHON_100)
    data = read_cifar100(tmp_path)
    assert len(data.class_names) == 100
    assert data.class_names[7] == "fine 7"
    assert data.domains[0].train.labels.tolist() == [90, 91, 92, 93, 94, 95]


def test_keys_of_python_2_may_be_bytes(tmp_path):
    write_cifar10(tmp_path)
    for path in tmp_path.iterdir():
        content = pickle.loads(path.read_bytes())
        content = {key.encode(): value for key, value in content.items()}
        if b"label_names" in content:
            content[b"label_names"] = [name.encode() for name in CIFAR10_NAMES]
        write_pickle(path, content)
    assert read_cifar10(tmp_path).class_names == tuple(CIFAR10_NAMES)


def refuse(reader, root, *parts):
    with pytest.raises(DataError) as caught:
        reader(root)
    for part in parts:
        assert str(part) in str(caught.value)


class _Runs:
    """Makes a file when it is unpickled."""

    def __init__(self, path, function=os.mkdir):
        self.path, self.function = path, function

    def __reduce__(self):
        return self.function, (self.path,)


@pytest.mark.parametrize("where", ["data", "labels", "extra"])
def test_a_hostile_batch_runs_nothing(tmp_path, where):
    write_cifar10(tmp_path)
    trap = tmp_path / "trap"
    batch = {**cifar_batch(), where: _Runs(str(trap))}
    path = tmp_path / "data_batch_3"
    write_pickle(path, batch)
    refuse(read_cifar10, tmp_path, path, "mkdir", "refused")
    assert not trap.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cbuiltins\neval\n(V1+1\ntR.",
        b"cnumpy\nload\n(Vx\ntR.",
        b"cnumpy\nndarray\n(tR.",
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
        b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__class__\x93.",
        b"Pnumber\n.",
        b"\x80\x04\x95",
        b"\x80\x02]q\x00.",
    ],
)
def test_other_hostile_or_strange_pickles(tmp_path, code):
    write_cifar10(tmp_path)
    path = tmp_path / "batches.meta"
    path.write_bytes(code)
    refuse(read_cifar10, tmp_path, path)


def test_a_hostile_batch_changes_nothing_for_the_next(tmp_path):
    write_cifar10(tmp_path)
    path = tmp_path / "batches.meta"
    intact = path.read_bytes()
    # Sets an attribute of what the pickle is given for numpy.dtype.
    path.write_bytes(
        b"\x80\x02cnumpy\ndtype\nN}U\x09_functionU\x01xs\x86b0" + intact[2:]
    )
    read_cifar10(tmp_path)
    path.write_bytes(intact)
    assert len(read_cifar10(tmp_path).domains[0].train) == 20


@pytest.mark.parametrize(
    "changes",
    [
        {"data": pixels(4, 3071)},
        {"data": pixels(4, 3072).astype(float)},
        {"data": None},
        {"labels": [0, 1, 2]},
        {"labels": [0, 1, 2, 10]},
        {"labels": [0, 1, 2, -1]},
        {"labels": ["a", "b", "c", "d"]},
    ],
)
def test_damaged_batches(tmp_path, changes):
    write_cifar10(tmp_path)
    path = tmp_path / "test_batch"
    write_pickle(path, {**cifar_batch(), **changes})
    refuse(read_cifar10, tmp_path, path, "Fetch the file again")


def test_a_batch_that_is_cut_off(tmp_path):
    write_cifar10(tmp_path)
    path = tmp_path / "data_batch_5"
    path.write_bytes(path.read_bytes()[:-500])
    refuse(read_cifar10, tmp_path, path, "damaged")


@pytest.mark.parametrize("name", ["data_batch_4", "test_batch", "batches.meta"])
def test_one_file_missing(tmp_path, name):
    write_cifar10(tmp_path / PYTHON_10)
    (tmp_path / PYTHON_10 / name).unlink()
    refuse(
        read_cifar10,
        tmp_path,
        tmp_path / PYTHON_10,
        f"'{name}' is missing, but there is",
        "kriz",
    )


def test_wrong_number_of_names(tmp_path):
    write_cifar10(tmp_path)
    write_pickle(tmp_path / "batches.meta", {"label_names": CIFAR10_NAMES[1:]})
    refuse(read_cifar10, tmp_path, "batches.meta", "9 classes, not 10")


def test_folders_called_train_and_test_are_not_cifar100(tmp_path):
    draw_tree(tmp_path, ["train", "test"], ["dog"], images=1)
    refuse(read_cifar100, tmp_path, "'test', 'train'", PYTHON_100)
