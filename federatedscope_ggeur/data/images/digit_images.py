"""The Digits benchmark: MNIST, USPS, SVHN, SYN (``data.type: digits@ggeur``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .arrays import PackedFile, idx_file, images_from_arrays, mat_file, usps_file
from .folder import check_same_classes, images_of, read_domain
from .layout import (
    ImageDataSet,
    ImageDomain,
    Images,
    Layout,
    register_image_reader,
    shown,
    spelling,
    subfolders,
)

_DIGITS = tuple(str(digit) for digit in range(10))
_TRAINS = ("train", "imgs_train")
_TESTS = ("test", "val", "valid", "imgs_valid")

_LAYOUT = Layout(
    name="digits",
    accepted=(
        "mnist, usps, svhn and syn, directly or in a folder Digits. MNIST: "
        "{train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, each also "
        "as .gz, in mnist, mnist/raw, MNIST/MNIST/raw or directly; USPS: usps.bz2 and "
        "usps.t.bz2 in usps or directly; SVHN: train_32x32.mat and test_32x32.mat in "
        "svhn or directly; SYN: synth_train_32x32.mat and synth_test_32x32.mat in syn "
        "or directly; each also as image files <domain>/{train,test}/<digit>/<file>, "
        "where test may be called val, or imgs_train and imgs_valid"
    ),
    source=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/ (MNIST), "
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html "
        "(USPS), http://ufldl.stanford.edu/housenumbers/ (SVHN, format 2) and "
        "https://www.kaggle.com/datasets/prasunroy/synthetic-digits (SYN; the .mat "
        "files are SynthDigits of http://yaroslav.ganin.net/)"
    ),
    domains={
        "mnist": (),
        "usps": (),
        "svhn": (),
        "syn": ("synth", "syndigits", "synthdigits", "syntheticdigits"),
    },
    containers=("digits", "digitfive", "digitsdg", "digitsfive"),
)


class _Packed(NamedTuple):
    """The packed files of a domain's splits, and the function that reads them.

    Each file is given as a tuple of the names that it may have.
    """

    read: Callable[..., PackedFile]
    train: tuple[tuple[str, ...], ...]
    test: tuple[tuple[str, ...], ...]


def _idx_names(split: str) -> tuple[tuple[str, ...], ...]:
    stems = ((f"{split}-images", "idx3-ubyte"), (f"{split}-labels", "idx1-ubyte"))
    return tuple(
        tuple(a + dot + b + end for dot in "-." for end in ("", ".gz"))
        for a, b in stems
    )


_PACKED = {
    "mnist": _Packed(idx_file, _idx_names("train"), _idx_names("t10k")),
    "usps": _Packed(usps_file, (("usps.bz2",),), (("usps.t.bz2",),)),
    "svhn": _Packed(mat_file, (("train_32x32.mat",),), (("test_32x32.mat",),)),
    "syn": _Packed(
        mat_file, (("synth_train_32x32.mat",),), (("synth_test_32x32.mat",),)
    ),
}


@register_image_reader("digits")
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
        found = {domain: _read_domain(root, domain) for domain in _LAYOUT.domains}
        domains = {name: parts for name, parts in found.items() if parts is not None}
        if not domains:
            raise _LAYOUT.lacking(root, "holds none of the four sets")
        _LAYOUT.log_absent(root, domains)
        check_same_classes(
            {
                name: {_DIGITS[c] for part in parts for c in np.unique(part.labels)}
                for name, parts in domains.items()
            },
            dict.fromkeys(domains, root),
        )
        made = tuple(ImageDomain(name, *parts) for name, parts in domains.items())
        return ImageDataSet("digits", made, _DIGITS)


def _read_domain(root: Path, domain: str) -> tuple[Images, Images] | None:
    """The training images and the test images; None if the domain has no files."""
    bases = _LAYOUT.bases(root)
    folders = [
        found[domain] for b in bases if domain in (found := _LAYOUT.domain_folders(b))
    ]
    places = [place for folder in folders for place in _places(folder, domain)]
    packed = _read_packed(root, domain, [*places, *bases])
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
    places = [folder]
    for place in places:
        if len(place.relative_to(folder).parts) < 2:
            places += [
                path for path in subfolders(place) if spelling(path.name) in names
            ]
    return places


def _read_packed(
    root: Path, domain: str, places: Sequence[Path]
) -> tuple[Images, Images] | None:
    """Read a domain's packed files, each from the first place that has the file."""
    read, train, test = _PACKED[domain]
    paths = _LAYOUT.first_files(root, places, [*train, *test])
    if not paths:
        return None
    parts = paths[: len(train)], paths[len(train) :]
    train, test = (images_from_arrays(root, [read(*map(str, p))]) for p in parts)
    return train, test


def _read_tree(root: Path, domain: str, folder: Path) -> tuple[Images, Images]:
    found = read_domain(domain, folder, trains=_TRAINS, tests=_TESTS)
    strange = sorted(found.classes - set(_DIGITS))
    if strange or found.test is None:
        what = (
            f"it has the classes {shown(strange)}" if strange else "it has no test part"
        )
        raise _LAYOUT.problem(folder, f"{what}.")
    return tuple(images_of(root, part, _DIGITS) for part in (found.train, found.test))
