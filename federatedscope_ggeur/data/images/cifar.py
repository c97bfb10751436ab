"""CIFAR-10 and CIFAR-100 (``data.type: cifar10@ggeur`` and ``cifar100@ggeur``).

Their files are pickles. They are read without a call of what a pickle names.
"""

from __future__ import annotations

import io
import os
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from federatedscope_ggeur.errors import DataError

from .arrays import PackedFile, damage_named, images_from_arrays
from .layout import ImageDataSet, ImageDomain, Layout, register_image_reader, spelling

_SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class _Cifar:
    """The files of a CIFAR set, and the keys in them of labels and class names."""

    name: str
    folder: str
    num_classes: int
    train: tuple[str, ...]
    test: str
    names: str
    labels_key: str
    names_key: str

    def read(self, root: str | Path) -> ImageDataSet:
        layout = Layout(
            name=self.name,
            accepted=f"the unpacked folder {self.folder} ('python version'), or its "
            "files",
            source="https://www.cs.toronto.edu/~kriz/cifar.html",
            containers=(self.name, spelling(self.folder)),
        )
        files = (*self.train, self.test, self.names)
        with layout.opened(root) as root:
            paths = layout.first_files(root, layout.bases(root), [(f,) for f in files])
            if not paths:
                raise layout.lacking(root, "holds no files of it")
            number = self.num_classes
            names = pickled_names(paths[-1], self.names_key, number)
            packed = [pickled_file(str(p), self.labels_key, number) for p in paths[:-1]]
            train, test = (
                images_from_arrays(root, part) for part in (packed[:-1], packed[-1:])
            )
            domain = ImageDomain(self.name, train, test)
            return ImageDataSet(self.name, (domain,), names)


_CIFAR10 = _Cifar(
    name="cifar10",
    folder="cifar-10-batches-py",
    num_classes=10,
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    names="batches.meta",
    labels_key="labels",
    names_key="label_names",
)
_CIFAR100 = _Cifar(
    name="cifar100",
    folder="cifar-100-python",
    num_classes=100,
    train=("train",),
    test="test",
    names="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
)


@register_image_reader("cifar10")
def read_cifar10(root: str | Path) -> ImageDataSet:
    """Read CIFAR-10: one domain, "cifar10", with the official parts and class numbers.

    The files are pickles. Unpickling calls nothing except numpy's arrays.

    Raises
    ------
    DataError
        A file is missing or damaged, or holds more than arrays.
    """
    return _CIFAR10.read(root)


@register_image_reader("cifar100")
def read_cifar100(root: str | Path) -> ImageDataSet:
    """Read CIFAR-100 with its 100 fine labels. All else is as for CIFAR-10."""
    return _CIFAR100.read(root)


class _Allowed:
    """A function that a pickle may call, but whose attributes it cannot reach."""

    __slots__ = ("_function",)

    def __init__(self, function):
        self._function = function

    def __call__(self, *args):
        return self._function(*args)


def _empty_array(_subtype, _shape, _dtype) -> np.ndarray:
    """Stands for numpy's `_reconstruct`: an empty array; the array's state fills it."""
    return np.ndarray.__new__(np.ndarray, (0,), "b")


def _array_of_bytes(buffer, dtype, shape, order) -> np.ndarray:
    """Stands for numpy's `_frombuffer`, which newer pickle protocols call."""
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order=order)


def _not_called(*_args):
    raise pickle.UnpicklingError("an array is made directly")


def _latin1(text: str, encoding: str) -> bytes:
    """Turn a text in a pickle of the batches into bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text in the encoding {encoding!r}")
    return text.encode("latin1")


_ALLOWED = {
    ("_codecs", "encode"): _latin1,
    ("numpy", "ndarray"): _not_called,
    ("numpy", "dtype"): np.dtype,
}
for _core in ("numpy.core", "numpy._core"):  # renamed in numpy 2
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = _empty_array
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _array_of_bytes


class _ArraysOnly(pickle.Unpickler):
    """Unpickles dicts, lists, texts, numbers and numpy arrays, and nothing else."""

    def find_class(self, module: str, name: str):
        if (module, name) not in _ALLOWED:
            raise DataError(
                f"the file is refused, because it asks for '{module}.{name}', which "
                "might run a program. No file of CIFAR asks for it."
            )
        # A new object each time, so that a file that changes it does not affect others.
        return _Allowed(_ALLOWED[module, name])


def _unpickle(path: str | os.PathLike) -> dict:
    with open(path, "rb") as file:
        # Python 2 wrote the genuine files, and its texts are bytes.
        found = _ArraysOnly(io.BytesIO(file.read()), encoding="latin1").load()
    return {k.decode("latin1") if isinstance(k, bytes) else k: found[k] for k in found}


def pickled_file(path: str, labels_key: str, num_classes: int) -> PackedFile:
    """Open a batch of CIFAR: a dict with ``data`` [n, 3072] and labels.

    Only numpy arrays and plain values are unpickled. A file that asks for anything else
    is refused, and none of its code runs.

    Raises
    ------
    DataError
        The file is damaged, asks for more than arrays, or holds something else.
    """
    with damage_named(path):
        batch = _unpickle(path)
        labels, rows = np.array(batch[labels_key]), len(_pixels(batch))
        is_class = (labels >= 0) & (labels < num_classes)
        if labels.dtype.kind not in "iu" or is_class.tolist() != [True] * rows:
            raise DataError(
                f"'{labels_key}' must hold a number from 0 to {num_classes - 1} for "
                f"each of the {rows} images."
            )
        return PackedFile(path, labels.astype(np.int64), _read_pickled)


def _read_pickled(path: str) -> np.ndarray:
    return _pixels(_unpickle(path)).transpose(0, 2, 3, 1)


def pickled_names(path: str | os.PathLike, key: str, number: int) -> tuple[str, ...]:
    """Read the class names in ``batches.meta`` or ``meta``, class 0 first."""
    with damage_named(path):
        names = _unpickle(path)[key]
        if len(names) != number:
            raise DataError(f"the file names {len(names)} classes, not {number}.")
        return tuple(n.decode("latin1") if isinstance(n, bytes) else n for n in names)


def _pixels(batch: dict) -> np.ndarray:
    if batch["data"].dtype != np.uint8:
        raise DataError("the file holds no array 'data' of bytes.")
    return batch["data"].reshape(-1, *_SHAPE)
