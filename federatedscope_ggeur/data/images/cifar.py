"""CIFAR-10 and CIFAR-100 (``data.type: cifar10@ggeur`` and ``cifar100@ggeur``)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from federatedscope_ggeur.data.images.arrays import images_from_arrays
from federatedscope_ggeur.data.images.base import (
    ImageDataSet,
    ImageDomain,
    Images,
    register_image_reader,
)
from federatedscope_ggeur.data.images.cifar_files import pickled_file, pickled_names
from federatedscope_ggeur.data.images.layout import Layout, shown, spelling
from federatedscope_ggeur.errors import DataError


class _Cifar(NamedTuple):
    """The files of a CIFAR set, and the keys in them of labels and class names."""

    layout: Layout
    num_classes: int
    train: tuple[str, ...]
    test: str
    names: str
    labels_key: str
    names_key: str


def _layout(name: str, folder: str) -> Layout:
    return Layout(
        name=name,
        accepted=f"the unpacked folder {folder} ('python version'), or its files",
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
        containers=(name, name.replace("cifar", "cifar_"), spelling(folder)),
    )


_CIFAR10 = _Cifar(
    layout=_layout("cifar10", "cifar-10-batches-py"),
    num_classes=10,
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    names="batches.meta",
    labels_key="labels",
    names_key="label_names",
)
_CIFAR100 = _Cifar(
    layout=_layout("cifar100", "cifar-100-python"),
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
    return _read(root, _CIFAR10)


@register_image_reader("cifar100")
def read_cifar100(root: str | Path) -> ImageDataSet:
    """Read CIFAR-100 with its 100 fine labels. All else is as in `read_cifar10`."""
    return _read(root, _CIFAR100)


def _read(root: str | Path, cifar: _Cifar) -> ImageDataSet:
    name = cifar.layout.name
    with cifar.layout.opened(root) as root:
        folder = _find(root, cifar)
        names = pickled_names(folder / cifar.names, cifar.names_key)
        if len(names) != cifar.num_classes:
            raise DataError(
                f"{folder / cifar.names}: the file names {len(names)} classes, not "
                f"{cifar.num_classes}. Fetch the file again."
            )

        def images(*files: str) -> Images:
            paths = [str(folder / file) for file in files]
            key, count = cifar.labels_key, cifar.num_classes
            return images_from_arrays(
                root, [pickled_file(path, key, count) for path in paths]
            )

        domain = ImageDomain(name, images(*cifar.train), images(cifar.test))
        return ImageDataSet(name, (domain,), tuple(names))


def _find(root: Path, cifar: _Cifar) -> Path:
    """The first folder that has any of the files. It must have all of them."""
    files = (*cifar.train, cifar.test, cifar.names)
    for folder in cifar.layout.bases(root):
        missing = [file for file in files if not (folder / file).is_file()]
        if not missing:
            return folder
        if len(missing) < len(files):
            raise cifar.layout.problem(
                folder, f"these files are missing: {shown(missing)}."
            )
    raise cifar.layout.lacking(root, "holds no files of it")
