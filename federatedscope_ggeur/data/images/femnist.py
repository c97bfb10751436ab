"""FEMNIST in LEAF's files (``data.type: femnist@ggeur``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple

import numpy as np

from federatedscope_ggeur.errors import DataError

from . import layout
from .layout import ImageDataSet, ImageDomain, Images, Layout, subfolders
from .packed import PackedFile, damage_named, images_from_arrays

#: Class c is the c-th of these characters, as LEAF numbers them.
CLASSES = (*digits, *ascii_uppercase, *ascii_lowercase)
_SIDE = 28
_LAYOUT = Layout(
    name="femnist",
    accepted="LEAF's folders train and test, or all_data, with .json files, each with "
    "'users' and 'user_data': {user: {'x': rows of 784 numbers from 0 to 1, 'y': "
    "numbers from 0 to 61}}",
    source="https://github.com/TalwalkarLab/leaf (data/femnist, preprocess.sh)",
    containers=("femnist*", "data", "leaf"),
)
#: The pixels of a user: an array without texts and objects, nearly all of a file.
_PIXELS = re.compile(rb'"x"\s*:\s*(\[[^"{}]*\])')


@layout.register_image_reader("femnist")
def read_femnist(root: str | Path) -> ImageDataSet:
    """Read FEMNIST: handwritten characters, 28 x 28 and grey, each by a known writer.

    One domain, "femnist", has 62 classes: 0-9, A-Z, a-z. LEAF's folders ``train`` and
    ``test`` are the split. If there is only ``all_data``, `data.splits` makes one.
    Writers are numbered by name, over all files. They are the users of ``data.splitter:
    natural``.

    Raises
    ------
    DataError
        There are no such folders, or LEAF did not write a file. The error names it.
    """
    with _LAYOUT.opened(root) as root:
        base, parts = _find(root)
        read = {part: [_read(path) for path in paths] for part, paths in parts.items()}
        names = sorted({u for files in read.values() for f in files for u in f.users})
        numbers = {name: number for number, name in enumerate(names)}
        made = {part: _images(base, files, numbers) for part, files in read.items()}
        train = made.get("train", made.get("all_data"))
        domain = ImageDomain("femnist", train, made.get("test"))
        return ImageDataSet("femnist", (domain,), CLASSES, grey=True)


def _find(root: Path) -> tuple[Path, dict[str, list[Path]]]:
    """The files of train and test. If there are none, the files of all_data."""
    for base in _LAYOUT.bases(root):
        inside = {path.name: path for path in subfolders(base)}
        files = {
            part: paths
            for part in ("train", "test", "all_data")
            if part in inside and (paths := sorted(inside[part].glob("*.json")))
        }
        everything = files.pop("all_data", None)
        if len(files) == 2:
            return base, files
        if everything:
            return base, {"all_data": everything}
        for part in files:
            other = "test" if part == "train" else "train"
            raise _LAYOUT.problem(
                base,
                f"the folder has .json files in '{part}', but none in '{other}'. Add "
                "the missing files.",
            )
    raise _LAYOUT.lacking(
        root, "holds no folder train, test or all_data with .json files"
    )


class _LeafFile(NamedTuple):
    """The images of a file, user by user, and the user of each image."""

    packed: PackedFile
    users: list[str]


class _User(NamedTuple):
    """The images of one user in a file. `pixels` is JSON that is not decoded yet."""

    name: str
    labels: np.ndarray
    pixels: bytes


def _read(path: Path) -> _LeafFile:
    with damage_named(path):
        users = list(_users(path.read_bytes()))
    labels = np.concatenate([np.zeros(0, np.int64), *(user.labels for user in users)])
    names = [user.name for user in users for _ in user.labels]
    return _LeafFile(PackedFile(str(path), labels, _read_pixels), names)


def _users(data: bytes) -> Iterator[_User]:
    """Yield the users of a file, in the order of its list 'users'."""
    pixels: list[bytes] = []

    def taken_out(match: re.Match) -> bytes:
        pixels.append(match[1])
        return b'"x": %d' % (len(pixels) - 1)

    content = json.loads(_PIXELS.sub(taken_out, data))
    names, held = content["users"], content["user_data"]
    if len(set(names)) < len(names):
        raise DataError("the list 'users' names a user twice.")
    for name in names:
        labels = held[name]["y"]
        if not all(type(c) is int and 0 <= c < len(CLASSES) for c in labels):
            last = len(CLASSES) - 1
            raise DataError(f"'y' of user '{name}' must be numbers from 0 to {last}.")
        place = held[name]["x"]
        yield _User(name, np.array(labels, dtype=np.int64), pixels[place])


def _read_pixels(path: str) -> np.ndarray:
    """Grey bytes [n, 28, 28] of all users in a file, in the order of 'users'."""
    pixels = [_grey(user) for user in _users(Path(path).read_bytes())]
    return np.concatenate([np.zeros((0, _SIDE, _SIDE), np.uint8), *pixels])


def _grey(user: _User) -> np.ndarray:
    wanted = len(user.labels), _SIDE**2
    values = np.array(json.loads(user.pixels), dtype=np.float32)
    if not wanted[0]:
        values = values.reshape(wanted)
    if values.shape != wanted or not ((values >= 0) & (values <= 1)).all():
        raise DataError(
            f"'x' of user '{user.name}' must be {wanted[0]} rows of {wanted[1]} "
            "numbers between 0 and 1, one row for each label in 'y'."
        )
    return np.rint(values * 255).astype(np.uint8).reshape(-1, _SIDE, _SIDE)


def _images(
    base: Path, files: Sequence[_LeafFile], numbers: Mapping[str, int]
) -> Images:
    images = images_from_arrays(base, [file.packed for file in files])
    users = [numbers[name] for file in files for name in file.users]
    return replace(images, users=np.array(users, dtype=np.int64))
