"""Read a folder of given embeddings (``data.type: embeddings@ggeur``)."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from federatedscope_ggeur.data.embeddings import (
    DataSet,
    Domain,
    Embeddings,
    check_labels_below,
)
from federatedscope_ggeur.data.images.layout import unreadable_named
from federatedscope_ggeur.data.named_labels import is_named, numbers_of_names
from federatedscope_ggeur.data.registry import register_reader
from federatedscope_ggeur.data.split import split_domain
from federatedscope_ggeur.data.text.features import TEXT, is_text_file
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)

LAYOUTS = (
    "Accepted layouts of data.root: <domain>.npz for each domain; or "
    "<domain>/train.npz and <domain>/test.npz for each domain; or train.npz and "
    "test.npz (one domain). Each file holds the arrays 'features' [n, D] and 'labels' "
    "[n]."
)
_SPLITS = ("train", "test")
_NEEDED, _OPTIONAL = ("features", "labels"), ("image_shape", "users")
_MOST_CLASSES = 100_000


@register_reader("embeddings")
def read_embeddings_folder(
    root: str | Path, splits: Sequence[float], seed: int
) -> DataSet:
    """Read the embeddings of all domains in a folder. Domains are sorted by name.

    Layouts: ``<domain>.npz``, or ``<domain>/{train,test}.npz``, or ``{train,test}.npz``
    (one domain, called "all"). Each file has the arrays ``features`` [n, D] (floats or
    integers, cast to float32) and ``labels`` [n] (whole numbers, or class names).

    A file may also hold ``image_shape`` (channels, height, width). Its features are
    then the pixels of images, uint8, channel by channel. ``users`` [n] (integers) says
    who made each row, for ``data.splitter: natural``.

    Beside these files there may be ``class_names.txt`` (one name in each line, class 0
    first), ``encoder.txt`` (one line) and ``text.npz`` (text features of the classes,
    see `data.text`). Without ``class_names.txt``, labels that are names give the class
    names. Numbered classes are called "0", "1", .... Other files are ignored.

    Parameters
    ----------
    root : path of the folder
    splits : [train, val, test]
        Fractions, used only for ``<domain>.npz``. Each domain is split by itself,
        stratified by class.
    seed : int
        Decides the split, together with the domain's name.

    Raises
    ------
    DataError
        A file cannot be used. The error names the path, the problem and what to do.
    ConfigError
        `splits` is impossible.
    """
    root = Path(root).expanduser()
    with unreadable_named(root):
        files = _find_files(root)
        arrays = {
            path: read_npz(path) for paths in files.values() for path in paths.values()
        }
        named = _names_of_labels(root, arrays)
        read = {
            (domain, split): _as_rows(path, domain, arrays.pop(path))
            for domain, paths in files.items()
            for split, path in paths.items()
        }
        class_names = named or _class_names(root, read)
        for (domain, split), rows in read.items():
            where = str(files[domain][split])
            check_labels_below(rows.labels, len(class_names), where)
        domains = [
            split_domain(read[name, ""], splits, seed)
            if "" in files[name]
            else Domain(name, read[name, "train"], read[name, "test"])
            for name in sorted(files)
        ]
        return DataSet(tuple(domains), class_names, _encoder(root))


def _find_files(root: Path) -> dict[str, dict[str, Path]]:
    """The files of each domain by split. The split is "" if the domain has no split."""
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise DataError(f"data.root: {root.absolute()} {problem}. {LAYOUTS}")
    here = _npz_in(root)
    if TEXT in here and is_text_file(here[TEXT]):
        del here[TEXT]  # this file is about classes and is no domain
    files = {stem: {"": path} for stem, path in here.items() if stem not in _SPLITS}
    single = {stem: path for stem, path in here.items() if stem in _SPLITS}
    nested = {
        folder.name: found
        for folder in root.iterdir()
        if folder.is_dir() and not folder.name.startswith(".")
        if (found := _npz_in(folder))
    }
    present = [name for group in (files, single, nested) for name in sorted(group)]
    if sum(map(bool, (files, single, nested))) > 1:
        raise DataError(
            f"{root}: the files {present} have different layouts. Use one layout, and "
            f"move other .npz files elsewhere. {LAYOUTS}"
        )
    if not present:
        raise DataError(f"{root}: the folder has no .npz file. {LAYOUTS}")
    if single:
        _check_pair(root, single)
        return {"all": single}
    for name, found in nested.items():
        _check_pair(root / name, found)
    return files or nested


def _npz_in(folder: Path) -> dict[str, Path]:
    # Not glob, because glob skips a folder that it may not list.
    paths = (path for path in folder.iterdir() if path.suffix == ".npz")
    return {
        path.stem: path
        for path in paths
        if not path.name.startswith(".") and _is_there(path)
    }


def _is_there(path: Path) -> bool:
    """Whether `path` is a file. Folders, broken links and the like are refused."""
    if not os.path.lexists(path):
        return False
    if not path.exists():
        raise DataError(
            f"{path}: is a link to '{os.readlink(path)}', which does not exist. "
            "Correct the link or remove it."
        )
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "a pipe, socket or device"
        raise DataError(f"{path}: is {kind}, not a file. Rename or remove it.")
    return True


def _check_pair(folder: Path, found: dict[str, Path]) -> None:
    missing = [f"{split}.npz" for split in _SPLITS if split not in found]
    extra = [f"{name}.npz" for name in sorted(found) if name not in _SPLITS]
    if missing:
        raise DataError(f"{folder}: there is no {' and no '.join(missing)}. {LAYOUTS}")
    if extra:
        raise DataError(
            f"{folder}: there must be no .npz file beside train.npz and test.npz, but "
            f"there is {extra}. Move it elsewhere."
        )


def read_npz(
    path: Path, needed: Sequence[str] = _NEEDED, optional: Sequence[str] = _OPTIONAL
) -> dict[str, np.ndarray]:
    """Read the arrays of an npz file, by name.

    Raises
    ------
    DataError
        The file is damaged, needs pickle, or lacks an array. The error names the file.
    """
    # numpy takes a file of an unknown kind for a pickle, so look for a zip first. The
    # file is opened here, because zipfile calls an unreadable path "no zip".
    with open(path, "rb") as file:
        is_zip = zipfile.is_zipfile(file)
    if not is_zip:
        raise DataError(
            f"{path}: the file is corrupt, or no npz archive. Write it with "
            "numpy.savez(path, features=..., labels=...)."
        )
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            arrays = {n: archive[n] for n in (*needed, *optional) if n in names}
    except Exception as error:  # a damaged zip fails in many ways
        if "allow_pickle" in str(error):
            raise DataError(
                f"{path}: an array of Python objects needs pickle, which is refused "
                "because unpickling can run code. Save numbers, or names as str."
            ) from None
        raise DataError(
            f"{path}: the file is corrupt and cannot be read ({error}). Write it again."
        ) from error
    for name in (*needed, *(name for name in optional if name in names)):
        if not isinstance(arrays.get(name), np.ndarray):
            raise DataError(
                f"{path}: the file lacks the array '{name}'; it holds {names}."
            )
    return arrays


def _as_rows(path: Path, domain: str, arrays: dict[str, np.ndarray]) -> Embeddings:
    rows = Embeddings.from_numpy(**arrays, domain=domain, where=str(path))
    if len(rows) == 0:
        raise DataError(
            f"{path}: 'features' and 'labels' have no rows. Remove the file."
        )
    return rows


def _names_of_labels(
    root: Path, arrays: dict[Path, dict[str, np.ndarray]]
) -> tuple[str, ...]:
    """The class names if the labels in the files are names; () if they are numbers.

    Labels that are names are turned into numbers, in place. Without class_names.txt,
    classes are in the order of their names.
    """
    named = [path for path in arrays if is_named(arrays[path]["labels"])]
    if not named:
        return ()
    numbered = [path for path in arrays if path not in named]
    if numbered:
        raise DataError(
            f"{root}: labels are names in {named[0].name}, but numbers in "
            f"{numbered[0].name}. Use one kind in all files."
        )
    path = root / "class_names.txt"
    if _is_there(path):
        names = _read_names(path)
    else:
        each = [np.unique(held["labels"].astype(str)) for held in arrays.values()]
        names = tuple(np.unique(np.concatenate(each)).tolist())
    for path, held in arrays.items():
        held["labels"] = numbers_of_names(held["labels"], names, str(path))
    return names


def _class_names(root: Path, read: dict[tuple[str, str], Embeddings]) -> tuple:
    path = root / "class_names.txt"
    if not _is_there(path):
        largest = max(int(rows.labels.max()) for rows in read.values())
        if largest >= _MOST_CLASSES:
            raise DataError(
                f"{root}: the largest label is {largest}, so there would be "
                f"{largest + 1} classes. Number the classes from 0 without gaps."
            )
        _say_gaps(root, largest, read)
        return tuple(str(c) for c in range(largest + 1))
    return _read_names(path)


def _read_names(path: Path) -> tuple[str, ...]:
    names = [line.strip() for line in _read_text(path).rstrip().splitlines()]
    for number, name in enumerate(names, start=1):
        if not name or name in names[: number - 1]:
            problem = f"repeats the name '{name}'" if name else "is empty"
            raise DataError(f"{path}: line {number} {problem}; name each class once.")
    return tuple(names)


def _say_gaps(root: Path, largest: int, read: dict) -> None:
    """Warn of labels without rows, because few people want classes without rows."""
    held = {c for rows in read.values() for c in rows.labels.unique().tolist()}
    missing = [c for c in range(largest + 1) if c not in held]
    if not missing:
        return
    shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
    why = (
        "labels must count from 0, but these start at 1"
        if missing == [0]
        else "labels must count from 0 without gaps"
    )
    logger.warning(
        "%s: no row has the label %s (%s), so some classes have no rows. Number "
        "the labels anew, or name all classes in class_names.txt",
        root,
        shown,
        why,
    )


def _encoder(root: Path) -> str:
    path = root / "encoder.txt"
    text = _read_text(path).strip() if _is_there(path) else ""
    if len(text.splitlines()) > 1:
        raise DataError(f"{path}: must hold one line that describes the encoder.")
    return text or "unknown (precomputed embeddings)"


def _read_text(path: Path) -> str:
    try:
        with unreadable_named(path):
            return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: the text is not UTF-8 ({error}). Save it as UTF-8."
        ) from error
