"""Data sets of small images: CIFAR-10 and -100, Tiny-ImageNet, FEMNIST."""

import json
import pickle
import shutil

import numpy as np
import pytest
from hostile_pickles import Runs
from image_miniatures import (
    CIFAR10_NAMES,
    WNIDS,
    cifar_batch,
    draw,
    draw_tree,
    leaf_users,
    loaded,
    pixels,
    refuse,
    write_cifar10,
    write_cifar100,
    write_leaf,
    write_pickle,
    write_tiny_imagenet,
)
from test_partition import divide

from federatedscope_ggeur.data import IMAGE_READERS, load_data
from federatedscope_ggeur.data.images.femnist import read_femnist
from federatedscope_ggeur.data.images.packed import read_cifar10, read_cifar100
from federatedscope_ggeur.data.images.tiny_imagenet import read_tiny_imagenet
from federatedscope_ggeur.errors import DataError

# CIFAR-10 and CIFAR-100, and pickles that want to run something.
#
# Tests of data/images/packed.py.


PYTHON_10, PYTHON_100 = "cifar-10-batches-py", "cifar-100-python"


@pytest.mark.parametrize("below", ["", PYTHON_10, f"cifar10/{PYTHON_10}", "CIFAR-10"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_cifar10(tmp_path, below, protocol):
    write_cifar10(tmp_path / below, protocol)
    data = IMAGE_READERS["cifar10"](tmp_path)
    assert data.name == "cifar10"
    (domain,) = data.domains
    assert domain.name == "cifar10"
    labels = [b + row for b in range(5) for row in range(4)]
    assert domain.train.labels.tolist() == labels
    assert domain.test.labels.tolist() == [5, 6, 7, 8]
    prefix = f"{below}/" if below else ""
    assert domain.train.keys[6] == f"{prefix}data_batch_2#2"
    assert len(set(domain.train.stamps)) == 5
    expected = pixels(4, 3072, seed=1)[2].reshape(3, 32, 32).transpose(1, 2, 0)
    image = domain.train.load(6)
    assert image.mode == "RGB"
    assert (np.asarray(image) == expected).all()


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


def test_keys_of_python_2_may_be_bytes(tmp_path):
    write_cifar10(tmp_path)
    for path in tmp_path.iterdir():
        content = pickle.loads(path.read_bytes())
        content = {key.encode(): value for key, value in content.items()}
        if b"label_names" in content:
            content[b"label_names"] = [name.encode() for name in CIFAR10_NAMES]
        write_pickle(path, content)
    assert read_cifar10(tmp_path).class_names == tuple(CIFAR10_NAMES)


@pytest.mark.parametrize("where", ["data", "labels", "extra"])
def test_a_hostile_batch_runs_nothing(tmp_path, where):
    write_cifar10(tmp_path)
    trap = tmp_path / "trap"
    batch = {**cifar_batch(), where: Runs(trap)}
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


@pytest.mark.parametrize("name", ["data_batch_4", "test_batch", "batches.meta"])
def test_a_file_that_is_cut_off_or_missing(tmp_path, name):
    folder = tmp_path / PYTHON_10
    write_cifar10(folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    refuse(read_cifar10, tmp_path, folder / name, "damaged")
    (folder / name).unlink()
    refuse(read_cifar10, tmp_path, folder, f"'{name}' is missing, but there", "kriz")


def test_wrong_number_of_names(tmp_path):
    write_cifar10(tmp_path)
    write_pickle(tmp_path / "batches.meta", {"label_names": CIFAR10_NAMES[1:]})
    refuse(read_cifar10, tmp_path, "batches.meta", "9 classes, not 10")


def test_folders_called_train_and_test_are_not_cifar100(tmp_path):
    draw_tree(tmp_path, ["train", "test"], ["dog"], images=1)
    refuse(read_cifar100, tmp_path, "'test', 'train'", PYTHON_100)


# Tiny-ImageNet: with its annotations, or with val sorted into folders.


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


def test_of_two_layouts_of_val_the_one_with_images_counts(tmp_path):
    for name, val in (("folders", ""), ("annotations", "annotated")):
        write_tiny_imagenet(tmp_path / name, val=val)
    left = tmp_path / "folders" / "val"
    (left / "images").mkdir()
    (left / "val_annotations.txt").write_text("val_0.JPEG\tx\n")
    draw(tmp_path / "annotations" / "val" / WNIDS[0] / "val_0.JPEG")
    for name in ("folders", "annotations"):
        assert len(read_tiny_imagenet(tmp_path / name).domains[0].test) == 6


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


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_missing_part(tmp_path, part):
    write_tiny_imagenet(tmp_path)
    shutil.rmtree(tmp_path / part)
    said = ("lacks the folders train and val", "'wnids.txt'", "cs231n")
    refuse(read_tiny_imagenet, tmp_path, *said)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda text, images: None, "val_annotations.txt is missing"),
        (lambda text, images: draw(images / "val_99.JPEG"), "not name the images '"),
        (lambda text, images: text + "val_99.JPEG\tx", "do not exist: '"),
        (lambda text, images: text + text[:21], "the file repeats '"),
        (lambda text, images: "val_0.JPEG n02124075\n", "separated by tabs"),
        (lambda text, images: text.replace(WNIDS[1], "n1"), "'n1'"),
    ],
)
def test_annotations_that_do_not_fit(tmp_path, damage, problem):
    write_tiny_imagenet(tmp_path)
    path = tmp_path / "val" / "val_annotations.txt"
    damaged = damage(path.read_text(), tmp_path / "val" / "images")
    if damaged is None:
        path.unlink()
    elif isinstance(damaged, str):
        path.write_text(damaged)
    refuse(read_tiny_imagenet, tmp_path, tmp_path / "val", problem)


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
    refuse(read_tiny_imagenet, tmp_path, tmp_path / "wnids.txt", problem)


def test_empty_class_folder(tmp_path):
    write_tiny_imagenet(tmp_path)
    empty = tmp_path / "train" / "n00000001" / "images"
    empty.mkdir(parents=True)
    refuse(read_tiny_imagenet, tmp_path, empty, "no image files")


# FEMNIST as LEAF writes it: json files, writers, 62 classes.


# Not sorted: writers are numbered by name, over all files.
FIRST, SECOND = {"f9_07": 3, "f0_02": 2}, {"f5_11": 4}


@pytest.mark.parametrize("below", ["", "data", "data/femnist/data"])
def test_all_data(tmp_path, below):
    one, two = leaf_users(FIRST), leaf_users(SECOND, seed=5)
    write_leaf(tmp_path / below / "all_data" / "all_data_0.json", one)
    write_leaf(tmp_path / below / "all_data" / "all_data_1.json", two)
    data = IMAGE_READERS["femnist"](tmp_path)
    (domain,) = data.domains
    assert (data.grey, domain.name, domain.test) == (True, "femnist", None)
    assert len(data.class_names) == 62
    assert "".join(data.class_names[8:12] + data.class_names[34:38]) == "89ABYZab"
    images = domain.train
    assert images.users.tolist() == [2, 2, 2, 0, 0, 1, 1, 1, 1]
    assert images.labels.tolist() == [0, 7, 14, 1, 8, 0, 7, 14, 21]
    assert images.keys[3] == "all_data/all_data_0.json#3"
    grey = np.concatenate([users[u][0] for users in (one, two) for u in users])
    assert (loaded(images) == grey[..., None]).all()


def test_train_and_test_go_before_all_data(tmp_path):
    for part, users in (("train", FIRST), ("test", SECOND), ("all_data", FIRST)):
        write_leaf(tmp_path / part / "a.json", leaf_users(users))
    (domain,) = read_femnist(tmp_path).domains
    assert domain.train.users.tolist() == [2, 2, 2, 0, 0]
    assert domain.test.users.tolist() == [1] * 4


def test_writers_are_clients(tmp_path, settings):
    rows = {f"f{number:02}": 20 + number for number in range(4)}
    write_leaf(tmp_path / "all_data" / "all_data_0.json", leaf_users(rows))
    for _ in range(2):  # made, and read again
        data = load_data("femnist@ggeur", str(tmp_path), [0.8, 0.0, 0.2], 0, settings)
        clients = divide(data, "natural", clients=4).clients
        for number, client in enumerate(clients):
            assert set(client.train.users.tolist()) == {number}
            assert set(client.test.users.tolist()) <= {number}
            assert len(client.train) + len(client.test) == 20 + number


CONTENT = {"users": ["a"], "user_data": {"a": {"x": [[0.5] * 784], "y": [1]}}}


def _with(**changes):
    return {**CONTENT, "user_data": {"a": {**CONTENT["user_data"]["a"], **changes}}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "damaged or has another format"),
        ({**CONTENT, "users": ["a", "b"]}, "damaged or has another format .'b'"),
        ({**CONTENT, "users": ["a", "a"]}, "names a user twice"),
        (_with(x=["a.jpg"]), "damaged or has another format"),
        (_with(y=[62]), "'y' of user 'a' must be numbers from 0 to 61"),
        (_with(y=[1.5]), "'y' of user 'a' must be numbers from 0 to 61"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "all_data" / "a.json"
    path.parent.mkdir()
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError, match=rf"a\.json: .*{message}.*Fetch the file again"):
        read_femnist(tmp_path)


@pytest.mark.parametrize(
    "x",
    [
        [],
        [[0.5] * 783],
        [0.5] * 784,
        [[0.5] * 783 + [[]]],
        [[0.5] * 783 + [1.01]],
        [[0.5] * 783 + [float("nan")]],
    ],
)
def test_other_pixels_are_refused_when_they_are_read(tmp_path, x):
    path = tmp_path / "all_data" / "a.json"
    path.parent.mkdir()
    path.write_text(json.dumps(_with(x=x)))
    images = read_femnist(tmp_path).domains[0].train
    with pytest.raises(DataError, match=r"a\.json: .*Fetch the file again"):
        images.load(0)


def test_one_part_alone(tmp_path):
    write_leaf(tmp_path / "train" / "a.json", leaf_users(FIRST))
    message = r"'train', but none in 'test'.*user_data.*leaf"
    with pytest.raises(DataError, match=message):
        read_femnist(tmp_path)
