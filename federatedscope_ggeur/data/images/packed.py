"""Readers of published data sets that are packed in array files: CIFAR and Digits.

torchvision's data sets read such files too. But they read all pixels at once, and MNIST
only if it is not compressed. Here labels are read first, and pixels when they are
needed. CIFAR's files are pickles. They are read without a call of what a pickle names.
"""

from __future__ import annotations

import bz2
import gzip
import io
import math
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from federatedscope_ggeur.errors import DataError

from . import layout, trees
from .bundled_digits import DIGITS
from .files import stamp_of
from .layout import ImageDataSet, ImageDomain, Images, Layout, nested, shown, subfolders

#: Reads the pixels of a file: uint8 [n, H, W] (grey) or [n, H, W, 3] (RGB).
PixelReader = Callable[[str], np.ndarray]


@dataclass(frozen=True)
class PackedFile:
    """One file with the labels of its images. The pixels are read later.

    Parameters
    ----------
    path : str
    labels : array of shape [n]
    read_pixels : PixelReader
        Reads the pixels. It must be picklable, so that it can be sent to another
        process. Its errors need not name the path.
    """

    path: str
    labels: np.ndarray
    read_pixels: PixelReader


@dataclass
class PackedLoader:
    """Loads image i of several packed files. Images are counted over all files.

    The pixels of a file are read with its first image, and kept. They are not sent
    along when the loader is sent to another process. Before processes are forked,
    `prepare` reads all pixels once, so that the processes share them.
    """

    files: Sequence[PackedFile]
    pixels: dict[int, np.ndarray] = field(default_factory=dict)

    def __getstate__(self) -> dict:
        return {"files": self.files, "pixels": {}}

    def __call__(self, row: int) -> Image.Image:
        number = 0
        while row >= len(self.files[number].labels):
            row -= len(self.files[number].labels)
            number += 1
        image = np.ascontiguousarray(self._pixels_of(number)[row])
        return Image.fromarray(image).convert("RGB")

    def prepare(self) -> None:
        """Read the pixels of all files.

        Raises
        ------
        DataError
            A file is damaged or missing. The error names the file.
        """
        for number in range(len(self.files)):
            self._pixels_of(number)

    def _pixels_of(self, number: int) -> np.ndarray:
        if number not in self.pixels:
            file = self.files[number]
            with damage_named(file.path):
                pixels = file.read_pixels(file.path)
            if len(pixels) != len(file.labels):
                raise DataError(
                    f"{file.path}: the file holds {len(pixels)} images, but there are "
                    f"{len(file.labels)} labels. Fetch the files again."
                )
            self.pixels[number] = pixels
        return self.pixels[number]


def images_from_arrays(root: Path, files: Sequence[PackedFile]) -> Images:
    """Make `Images` of all rows of `files`. Keys are ``<path below root>#<row>``."""
    keys, stamps = [], []
    for file in files:
        below = Path(os.path.relpath(file.path, root)).as_posix()
        keys += [f"{below}#{row}" for row in range(len(file.labels))]
        stamps += [stamp_of(file.path)] * len(file.labels)
    labels = np.concatenate([file.labels for file in files]).astype(np.int64)
    return Images(labels, tuple(keys), tuple(stamps), PackedLoader(files))


@contextmanager
def damage_named(path: str | os.PathLike) -> Iterator[None]:
    """Turn any error of a damaged file into a `DataError` that names the path."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error} Fetch the file again.") from None
    except Exception as error:  # damaged files fail in many ways
        problem = str(error) or type(error).__name__
        raise DataError(
            f"{path}: the file cannot be read, because it is damaged or has another "
            f"format ({problem}). Fetch the file again."
        ) from error


class Packed(NamedTuple):
    """The packed files of a domain's splits, and the function that opens them.

    Each file is given as a tuple of the names that it may have.
    """

    open: Callable[[Sequence[str]], Sequence[PackedFile]]
    train: Sequence[tuple[str, ...]]
    test: Sequence[tuple[str, ...]]

    def find(
        self, known: Layout, root: Path, places: Sequence[Path]
    ) -> tuple[Images, Images] | None:
        """The images to train and to test on; None if there is none of the files.

        Each file is read from the first of `places` that has it.
        """
        paths = known.first_files(root, places, [*self.train, *self.test])
        if not paths:
            return None
        names, number = list(map(str, paths)), len(self.train)
        return (
            images_from_arrays(root, self.open(names[:number])),
            images_from_arrays(root, self.open(names[number:])),
        )


_SHAPE = (3, 32, 32)


@layout.register_image_reader("cifar10")
def read_cifar10(root: str | Path) -> ImageDataSet:
    """Read CIFAR-10: one domain, "cifar10", with the official parts and class numbers.

    The files are pickles. Unpickling calls nothing except numpy's arrays.

    Raises
    ------
    DataError
        A file is missing or damaged, or holds more than arrays.
    """
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    files = (*batches, "test_batch", "batches.meta")
    return _read_cifar(root, "cifar10", "cifar-10-batches-py", files, "", 10)


@layout.register_image_reader("cifar100")
def read_cifar100(root: str | Path) -> ImageDataSet:
    """Read CIFAR-100 with its 100 fine labels. All else is as for CIFAR-10."""
    files = ("train", "test", "meta")
    return _read_cifar(root, "cifar100", "cifar-100-python", files, "fine_", 100)


def _read_cifar(
    root: str | Path,
    name: str,
    folder: str,
    files: Sequence[str],
    kind: str,
    number: int,
) -> ImageDataSet:
    """Read `files`: those to train on, the one to test on, and the one of names.

    `kind` is what stands before the keys of labels and of names.
    """
    known = Layout(
        name,
        accepted="the files of its 'python version'",
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
        containers=(folder, name),
    )

    def opened(paths: Sequence[str]) -> list[PackedFile]:
        return [pickled_file(path, f"{kind}labels", number) for path in paths]

    with known.opened(root) as root:
        bases, all_files = known.bases(root), [(file,) for file in files]
        *_, meta = known.first_files(root, bases, all_files) or [None]
        if meta is None:
            raise known.lacking(root, "holds no files of it")
        names = pickled_names(meta, f"{kind}label_names", number)
        packed = Packed(opened, all_files[:-2], all_files[-2:-1])
        domain = ImageDomain(name, *packed.find(known, root, bases))
        return ImageDataSet(name, (domain,), names)


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
        batch = _ArraysOnly(io.BytesIO(file.read()), encoding="latin1").load()
    return {k.decode("latin1") if isinstance(k, bytes) else k: batch[k] for k in batch}


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


_IDX_UBYTE = 8
_USPS_SIDE = 16
_TRAINS = ("train", "imgs_train")
_TESTS = ("test", "val", "valid", "imgs_valid")

_LAYOUT = Layout(
    name="digits",
    accepted="MNIST: {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-"
    "ubyte, each also as .gz, in mnist, mnist/raw, MNIST/MNIST/raw or directly; USPS: "
    "usps.bz2 and usps.t.bz2, SVHN: train_32x32.mat and test_32x32.mat, SYN: "
    "synth_train_32x32.mat and synth_test_32x32.mat, in usps, svhn, syn or directly; "
    "each also as image files <domain>/{train,test}/<digit>/<file>, where test may be "
    "called val, or imgs_train and imgs_valid",
    source="https://ossci-datasets.s3.amazonaws.com/mnist/ (MNIST), "
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html (USPS), "
    "http://ufldl.stanford.edu/housenumbers/ (SVHN, format 2) and "
    "https://www.kaggle.com/datasets/prasunroy/synthetic-digits (SYN; the .mat files "
    "are SynthDigits of http://yaroslav.ganin.net/)",
    domains={
        "mnist": (),
        "usps": (),
        "svhn": (),
        "syn": ("synth", "syndigits", "synthdigits", "syntheticdigits"),
    },
    containers=("Digits", "DigitFive", "Digits-DG", "Digits-Five"),
)


def _digits_of(labels: np.ndarray) -> np.ndarray:
    """`labels` as int64. Labels that are not digits are refused."""
    bad = labels[(labels < 0) | (labels > 9) | (labels != np.floor(labels))]
    if len(bad):
        raise DataError(f"the file holds the label {bad[0]}, which is no digit.")
    return labels.astype(np.int64)


def idx_file(paths: Sequence[str]) -> list[PackedFile]:
    """Open MNIST's pair of idx files of images and labels, plain or gzip-compressed.

    Raises
    ------
    DataError
        A file is damaged. The error names the file.
    """
    images, labels = paths
    with damage_named(labels):
        digits = _digits_of(_read_idx(labels, 1))
    return [PackedFile(images, digits, partial(_read_idx, ndim=3))]


def _read_idx(path: str, ndim: int) -> np.ndarray:
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        head = file.read(4 * (ndim + 1))
        if len(head) < 4 * (ndim + 1) or head[:4] != bytes((0, 0, _IDX_UBYTE, ndim)):
            raise DataError(
                f"the file is no idx file of bytes with {ndim} dimension(s)."
            )
        shape = [int(size) for size in np.frombuffer(head, ">u4", ndim, offset=4)]
        data = file.read(math.prod(shape) + 1)
    return np.frombuffer(data, np.uint8).reshape(shape)


def usps_file(paths: Sequence[str]) -> list[PackedFile]:
    """Open USPS in libsvm's text format, bz2-compressed: ``<label> <index>:<value>
    ...``.

    Labels are 1 to 10 for the digits 0 to 9. The pixels 1 to 256, row by row, have
    values from -1 (black) to 1 (white). Pixels that are left out are 0.
    """
    (path,) = paths
    with damage_named(path), bz2.open(path) as lines:
        labels = np.array([float(line.split(None, 1)[0]) for line in lines])
        return [PackedFile(path, _digits_of(labels - 1), _read_usps)]


def _read_usps(path: str) -> np.ndarray:
    # Imported here, because it is slow to import and other readers do not need it.
    from sklearn.datasets import load_svmlight_file

    size = _USPS_SIDE**2
    rows, _ = load_svmlight_file(
        path, n_features=size, dtype=np.float32, zero_based=False
    )
    values = rows.toarray()
    if not (np.abs(values) <= 1).all():
        raise DataError("the file holds values outside -1..1.")
    # Cut off and not rounded, to get the same bytes as torchvision.
    pixels = ((values + 1) / 2 * 255).astype(np.uint8)
    return pixels.reshape(-1, _USPS_SIDE, _USPS_SIDE)


def mat_file(paths: Sequence[str]) -> list[PackedFile]:
    """Open a file in SVHN's format: ``X`` [H, W, 3, n] in bytes, and ``y`` [n, 1].

    SYN has this format, too. SVHN has the label 10 for the digit 0.
    """
    (path,) = paths
    with damage_named(path):
        labels = _read_mat(path, "y").reshape(-1)
        digits = _digits_of(np.where(labels == 10, 0, labels))
    return [PackedFile(path, digits, _read_mat_pixels)]


def _read_mat_pixels(path: str) -> np.ndarray:
    pixels = _read_mat(path, "X")
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[2] != 3:
        raise DataError(
            f"the array 'X' must hold bytes [H, W, 3, n], but holds {pixels.dtype} "
            f"{list(pixels.shape)}."
        )
    return pixels.transpose(3, 0, 1, 2)


def _read_mat(path: str, name: str) -> np.ndarray:
    # Imported here, because it is slow to import and other readers do not need it.
    from scipy.io import loadmat

    array = loadmat(path, variable_names=[name]).get(name)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf":
        raise DataError(f"the file has no intact array '{name}' of numbers.")
    return array


def _idx_names(split: str) -> list[tuple[str, ...]]:
    stems = ((f"{split}-images", "idx3-ubyte"), (f"{split}-labels", "idx1-ubyte"))
    return [
        tuple(a + dot + b + end for dot in "-." for end in ("", ".gz"))
        for a, b in stems
    ]


_PACKED = {
    "mnist": Packed(idx_file, _idx_names("train"), _idx_names("t10k")),
    "usps": Packed(usps_file, [("usps.bz2",)], [("usps.t.bz2",)]),
    "svhn": Packed(mat_file, [("train_32x32.mat",)], [("test_32x32.mat",)]),
    "syn": Packed(mat_file, [("synth_train_32x32.mat",)], [("synth_test_32x32.mat",)]),
}


@layout.register_image_reader("digits")
def read_digits(root: str | Path) -> ImageDataSet:
    """Read MNIST, USPS, SVHN and SYN with their official training and test parts.

    Domains are in the paper's order: mnist, usps, svhn, syn. Some may be missing. Class
    c is the digit c. (USPS calls it c + 1, and SVHN calls the digit 0 "10".) SVHN's
    additional training images, ``extra_32x32.mat``, are not used.

    Raises
    ------
    DataError
        There is no domain, a file is missing or damaged, or domains differ in their
        digits.
    """
    with _LAYOUT.opened(root) as root:
        read = {domain: _read_domain(root, domain) for domain in _LAYOUT.domains}
        domains = {name: parts for name, parts in read.items() if parts is not None}
        if not domains:
            raise _LAYOUT.lacking(root, "holds none of the four sets")
        _LAYOUT.log_absent(root, domains)
        held = {
            name: {DIGITS[c] for part in parts for c in np.unique(part.labels)}
            for name, parts in domains.items()
        }
        trees.check_same_classes(held, dict.fromkeys(domains, root))
        made = tuple(ImageDomain(name, *parts) for name, parts in domains.items())
        return ImageDataSet("digits", made, DIGITS)


def _read_domain(root: Path, domain: str) -> tuple[Images, Images] | None:
    """The training images and the test images; None if the domain has no files."""
    bases = _LAYOUT.bases(root)
    by_base = map(_LAYOUT.domain_folders, bases)
    folders = [folders[domain] for folders in by_base if domain in folders]
    places = [place for folder in folders for place in _places(folder, domain)]
    packed = _PACKED[domain].find(_LAYOUT, root, [*places, *bases])
    if packed is not None:
        return packed
    for folder in folders:
        inside = {path.name.lower() for path in subfolders(folder)}
        if inside & {*_TRAINS, *_TESTS}:
            return _read_tree(root, domain, folder)
    if folders:
        raise _LAYOUT.problem(folders[0], f"the folder holds no files of '{domain}'.")
    return None


def _places(folder: Path, domain: str) -> list[Path]:
    """The folders that may hold a domain's packed files, e.g. ``MNIST/MNIST/raw``."""
    names = ("raw", domain, *_LAYOUT.domains[domain])
    return nested(folder, 2, names.__contains__)


def _read_tree(root: Path, domain: str, folder: Path) -> tuple[Images, Images]:
    tree = trees.read_domain(domain, folder, trains=_TRAINS, tests=_TESTS)
    strange = sorted(tree.classes - set(DIGITS))
    if strange:
        raise _LAYOUT.problem(folder, f"it has the classes {shown(strange)}.")
    if tree.test is None:
        raise _LAYOUT.problem(folder, "it has no test part.")
    train = trees.images_of(root, tree.train, DIGITS)
    return train, trees.images_of(root, tree.test, DIGITS)
