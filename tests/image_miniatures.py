"""Writes miniatures of image data sets in their real file formats."""

import bz2
import gzip
import json
import pickle
import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

from federatedscope_ggeur.errors import DataError


def pixels(n, *shape, seed=0):
    """Random bytes [n, ...]."""
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def placed(path):
    """The path of a file, whose folder is made."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return Path(path)


def draw(path, colour=(200, 30, 60), size=(6, 4)):
    """One image of one colour, in the format that the file's name says."""
    path = placed(path)
    mode = "L" if path.suffix.lower() == ".pgm" else "RGB"
    Image.new(mode, size, colour[0] if mode == "L" else colour).save(path)
    return path


def draw_tree(root, domains, classes, images=2, ext="jpg"):
    """``<domain>/<class>/pic_<i>.<ext>`` for every domain and class."""
    for domain in domains:
        for name in classes:
            for number in range(images):
                draw(Path(root) / domain / name / f"pic_{number:03}.{ext}")


def write_idx(path, array):
    """The idx format of MNIST's pages; compressed if the name ends with .gz."""
    path = placed(path)
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    data = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_mnist(folder, end="", dot="-", n=20):
    for split, seed in (("train", 1), ("t10k", 2)):
        images, labels = pixels(n, 28, 28, seed=seed), np.arange(n) % 10
        write_idx(Path(folder) / f"{split}-images{dot}idx3-ubyte{end}", images)
        write_idx(Path(folder) / f"{split}-labels{dot}idx1-ubyte{end}", labels)


def write_usps(folder, n=20):
    """libsvm's text: labels 1 to 10, 256 values from -1 to 1."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, seed in (("usps.bz2", 1), ("usps.t.bz2", 2)):
        values = np.random.default_rng(seed).uniform(-1, 1, (n, 256)).round(6)
        lines = [
            f"{row % 10 + 1} " + " ".join(f"{i}:{v}" for i, v in enumerate(image, 1))
            for row, image in enumerate(values)
        ]
        text = "".join(f"{line} \n" for line in lines)
        (Path(folder) / name).write_bytes(bz2.compress(text.encode()))


def write_mat(path, labels, seed=0, **changes):
    """SVHN's format 2: X [32, 32, 3, n], y [n, 1]."""
    labels = np.asarray(labels)
    images = pixels(len(labels), 32, 32, 3, seed=seed)
    content = {
        "X": images.transpose(1, 2, 3, 0),
        "y": labels.reshape(-1, 1).astype(np.uint8),
    }
    scipy.io.savemat(placed(path), {**content, **changes}, do_compression=True)
    return images


def write_svhn(folder, n=20, prefix="", zero=10):
    digits = np.arange(n) % 10
    labels = np.where(digits == 0, zero, digits)
    for number, split in enumerate(("train", "test")):
        write_mat(Path(folder) / f"{prefix}{split}_32x32.mat", labels, seed=number)


write_syn = partial(write_svhn, prefix="synth_", zero=0)


def write_digits(root, n=20):
    """All four domains."""
    write_mnist(Path(root) / "mnist", n=n)
    write_usps(Path(root) / "usps", n=n)
    write_svhn(Path(root) / "svhn", n=n)
    write_syn(Path(root) / "syn", n=n)


def write_pickle(path, content, protocol=2):
    placed(path).write_bytes(pickle.dumps(content, protocol=protocol))


CIFAR10_NAMES = [
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
    "truck",
]  # fmt: skip


def cifar_batch(key="labels", n=4, classes=10, seed=0):
    """What a batch of the "python version" holds."""
    return {
        "batch_label": "a batch",
        key: [(seed + row) % classes for row in range(n)],
        "data": pixels(n, 3072, seed=seed),
        "filenames": [f"{row}.png" for row in range(n)],
    }


def write_cifar10(folder, protocol=2, n=4):
    folder = Path(folder)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for seed, name in enumerate(names):
        write_pickle(folder / name, cifar_batch(n=n, seed=seed), protocol)
    write_pickle(folder / "batches.meta", {"label_names": CIFAR10_NAMES}, protocol)


def write_cifar100(folder, n=6):
    folder = Path(folder)
    for seed, name in enumerate(("train", "test")):
        batch = cifar_batch("fine_labels", n=n, classes=100, seed=90 + seed)
        batch["coarse_labels"] = [label // 5 for label in batch["fine_labels"]]
        write_pickle(folder / name, batch)
    names = [f"fine {c}" for c in range(100)]
    write_pickle(folder / "meta", {"fine_label_names": names})


WNIDS = ["n02124075", "n01443537", "n04067472"]  # wnids.txt is not sorted either


def write_tiny_imagenet(root, images=2, train_images="images", val="annotated"):
    """`val`: "annotated", or how folders stand in val: "" or "images" below each."""
    root = Path(root)
    lines = []
    for wnid in WNIDS:
        for number in range(images):
            draw(root / "train" / wnid / train_images / f"{wnid}_{number}.JPEG")
            name = f"val_{len(lines)}.JPEG"
            if val == "annotated":
                draw(root / "val" / "images" / name)
            else:
                draw(root / "val" / wnid / val / name)
            lines.append(f"{name}\t{wnid}\t0\t0\t62\t62\n")
        boxes = root / "train" / wnid / f"{wnid}_boxes.txt"
        boxes.write_text("boxes")
    (root / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    (root / "words.txt").write_text(
        "n01443537\tgoldfish, Carassius auratus\n"
        "n02124075\tEgyptian cat\n"
        "n99999999\tnot here\n"
        "n04067472\treel\n"
    )
    if val == "annotated":
        (root / "val" / "val_annotations.txt").write_text("".join(lines))


def write_released_office_home(root, domains, classes=65, parts=("train", "test")):
    """The Office-Home-LDS release: ``class_<c>_index_<i>.jpg`` in each part."""
    numbers = {"train": 0, "client": 0, "test": 1}
    for domain in domains:
        for part in parts:
            # The client's share is drawn from the training part.
            shares = range(0, classes, 2) if part == "client" else range(classes)
            for c in shares:
                index = 2 * c + numbers[part]
                draw(Path(root) / domain / part / f"class_{c}_index_{index}.jpg")


DOMAINNET = ["clipart", "infograph", "painting", "quickdraw", "real", "sketch"]


def write_domainnet(root, classes, domains=DOMAINNET, lists="", images=4):
    """Images and, in the folder `lists`, the official lists: every fourth tests.

    `classes` holds (name, number) pairs.
    """
    root = Path(root)
    draw_tree(root, domains, [name for name, _ in classes], images)
    (root / lists).mkdir(exist_ok=True)
    for domain in domains:
        parts = {"train": [], "test": []}
        for name, number in classes:
            for row in range(images):
                part = parts["test" if row % 4 == 3 else "train"]
                part.append(f"{domain}/{name}/pic_{row:03}.jpg {number}\n")
        for part, lines in parts.items():
            (root / lists / f"{domain}_{part}.txt").write_text("".join(lines))


def leaf_users(rows, seed=0):
    """LEAF's content of a file: {user: rows} to bytes [n, 28, 28] and labels."""
    made = {}
    for number, (user, n) in enumerate(rows.items()):
        images = pixels(n, 28, 28, seed=seed + number)
        made[user] = images, [(number + 7 * row) % 62 for row in range(n)]
    return made


def write_leaf(path, users):
    """A .json file as LEAF's preprocessing writes it: grey values from 0 to 1."""
    data = {
        user: {"x": (images.reshape(-1, 784) / 255).tolist(), "y": labels}
        for user, (images, labels) in users.items()
    }
    rows = [len(labels) for _, labels in users.values()]
    content = {"users": list(users), "num_samples": rows, "user_data": data}
    placed(path).write_text(json.dumps(content))


def loaded(images):
    """The pixels of all images [n, height, width, 3]."""
    return np.stack([np.asarray(images.load(row)) for row in range(len(images))])


def change(path, old, new):
    """Another text in the place of `old`, wherever it stands in a file."""
    path.write_text(path.read_text().replace(old, new))


def refuse(reader, root, *parts):
    """Check that a reader refuses a folder, and that its message has these parts."""
    with pytest.raises(DataError) as caught:
        reader(root)
    for part in parts:
        assert str(part) in str(caught.value)
