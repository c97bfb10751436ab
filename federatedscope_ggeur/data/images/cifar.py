"""CIFAR-10 and CIFAR-100 (``data.type: cifar10@ggeur`` and ``cifar100@ggeur``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from federatedscope_ggeur.data.images.arrays import images_from_arrays
from federatedscope_ggeur.data.images.base import (
    ImageDataSet,
    ImageDomain,
    register_image_reader,
)
from federatedscope_ggeur.data.images.cifar_files import (
    pickled_file,
    pickled_names,
)
from federatedscope_ggeur.data.images.layout import Layout, shown, spelling
from federatedscope_ggeur.errors import DataError

_SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True)
class _Cifar:
    """One of the two sets.

    Attributes
    ----------
    num_classes : int
    folder : str
        What the archive unpacks to.
    labels, class_names : str
        Keys of what is pickled.
    train, test : tuple of str
        Files.
    names : str
        The file of the classes' names.
    """

    num_classes: int
    folder: str
    labels: str
    class_names: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str

    @property
    def layout(self) -> Layout:
        """Where it lies below ``data.root``."""
        name = f"cifar{self.num_classes}"
        numbered = spelling(f"cifar-{self.num_classes}")
        return Layout(
            name=name,
            accepted=(
                f"the unpacked folder {self.folder} (the page's 'python version'), or "
                "its files"
            ),
            source=_SOURCE,
            containers=(name, numbered, spelling(self.folder)),
        )


_CIFAR10 = _Cifar(
    num_classes=10,
    folder="cifar-10-batches-py",
    labels="labels",
    class_names="label_names",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test=("test_batch",),
    names="batches.meta",
)
_CIFAR100 = _Cifar(
    num_classes=100,
    folder="cifar-100-python",
    labels="fine_labels",
    class_names="fine_label_names",
    train=("train",),
    test=("test",),
    names="meta",
)


@register_image_reader("cifar10")
def read_cifar10(root: str | Path) -> ImageDataSet:
    """Read CIFAR-10: one domain, "cifar10", the official parts and class numbers.

    The "python version" is unpickled without calling anything but numpy's arrays.

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
    layout = cifar.layout
    with layout.opened(root) as root:
        folder = _find(root, cifar, layout)
        names = pickled_names(folder / cifar.names, cifar.class_names)
        if len(names) != cifar.num_classes:
            raise DataError(
                f"{folder / cifar.names}: names {len(names)} classes, not "
                f"{cifar.num_classes}. Fetch the file again."
            )
        train, test = (
            [
                pickled_file(str(folder / file), cifar.labels, cifar.num_classes)
                for file in files
            ]
            for files in (cifar.train, cifar.test)
        )
        domain = ImageDomain(
            layout.name, images_from_arrays(root, train), images_from_arrays(root, test)
        )
        return ImageDataSet(layout.name, (domain,), tuple(names))


def _find(root: Path, cifar: _Cifar, layout: Layout) -> Path:
    """The first folder in which any file is; then all must be."""
    files = (*cifar.train, *cifar.test, cifar.names)
    for folder in layout.bases(root):
        missing = [file for file in files if not (folder / file).is_file()]
        if not missing:
            return folder
        if len(missing) < len(files):
            raise layout.problem(folder, f"{shown(missing)} missing.")
    held = shown([path.name for path in sorted(root.iterdir())])
    raise layout.problem(root, f"data.root holds no files of it (but: {held}).")
