"""CIFAR-10 and CIFAR-100 (``data.type: cifar10@ggeur`` and ``cifar100@ggeur``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from federatedscope_ggeur.data.images.arrays import PackedFile, images_from_arrays
from federatedscope_ggeur.data.images.base import (
    ImageDataSet,
    ImageDomain,
    register_image_reader,
)
from federatedscope_ggeur.data.images.cifar_files import (
    binary_file,
    pickled_file,
    pickled_names,
)
from federatedscope_ggeur.data.images.layout import Layout, read_lines, shown, spelling
from federatedscope_ggeur.errors import DataError

_SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"


class _Form(NamedTuple):
    """One of the two forms in which a set is distributed."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str
    read: Callable[[str], PackedFile]
    read_names: Callable[[Path], list[str]]


class _Cifar(NamedTuple):
    layout: Layout
    num_classes: int
    forms: tuple[_Form, _Form]


def _cifar(
    num_classes: int,
    folders: tuple[str, str],
    labels: str,
    train: tuple[str, ...],
    test: str,
    names: tuple[str, str],
) -> _Cifar:
    """Describe a set by its two folders, the key of its labels, its files without the
    binary version's ``.bin``, and the two files of its classes' names."""
    name = f"cifar{num_classes}"
    layout = Layout(
        name=name,
        accepted=(
            f"the unpacked folder {folders[0]} (the page's 'python version') or "
            f"{folders[1]} ('binary version'), or the files of one of them"
        ),
        source=_SOURCE,
        containers=(name, spelling(f"cifar-{num_classes}"), *map(spelling, folders)),
    )
    names_key = labels.replace("labels", "label_names")
    label_bytes = 1 if num_classes == 10 else 2
    forms = (
        _Form(
            train,
            (test,),
            names[0],
            partial(pickled_file, labels_key=labels, num_classes=num_classes),
            partial(pickled_names, key=names_key),
        ),
        _Form(
            tuple(f"{file}.bin" for file in train),
            (f"{test}.bin",),
            names[1],
            partial(binary_file, label_bytes=label_bytes, num_classes=num_classes),
            read_lines,
        ),
    )
    return _Cifar(layout, num_classes, forms)


_CIFAR10 = _cifar(
    10,
    ("cifar-10-batches-py", "cifar-10-batches-bin"),
    "labels",
    tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test_batch",
    ("batches.meta", "batches.meta.txt"),
)
_CIFAR100 = _cifar(
    100,
    ("cifar-100-python", "cifar-100-binary"),
    "fine_labels",
    ("train",),
    "test",
    ("meta", "fine_label_names.txt"),
)


@register_image_reader("cifar10")
def read_cifar10(root: str | Path) -> ImageDataSet:
    """Read CIFAR-10: one domain, "cifar10", the official parts and class numbers.

    The pickled "python version" is preferred where both versions are present; it is
    unpickled without calling anything but numpy's arrays.

    Raises
    ------
    DataError
        A file is missing, damaged or refused.
    """
    return _read(root, _CIFAR10)


@register_image_reader("cifar100")
def read_cifar100(root: str | Path) -> ImageDataSet:
    """Read CIFAR-100 with its 100 fine labels; otherwise as `read_cifar10`."""
    return _read(root, _CIFAR100)


def _read(root: str | Path, cifar: _Cifar) -> ImageDataSet:
    name = cifar.layout.name
    with cifar.layout.opened(root) as root:
        folder, form = _find(root, cifar)
        names = form.read_names(folder / form.names)
        if len(names) != cifar.num_classes:
            raise DataError(
                f"{folder / form.names}: names {len(names)} classes, not "
                f"{cifar.num_classes}. Fetch the file again."
            )
        parts = [
            images_from_arrays(root, [form.read(str(folder / file)) for file in files])
            for files in (form.train, form.test)
        ]
        return ImageDataSet(name, (ImageDomain(name, *parts),), tuple(names))


def _find(root: Path, cifar: _Cifar) -> tuple[Path, _Form]:
    """The first folder and form of which any file is there; then all must be."""
    for form in cifar.forms:
        files = (*form.train, *form.test, form.names)
        for folder in cifar.layout.bases(root):
            missing = [file for file in files if not (folder / file).is_file()]
            if not missing:
                return folder, form
            if len(missing) < len(files):
                raise cifar.layout.problem(folder, f"{shown(missing)} missing.")
    held = shown([path.name for path in sorted(root.iterdir())])
    raise cifar.layout.problem(root, f"data.root holds no files of it (but: {held}).")
