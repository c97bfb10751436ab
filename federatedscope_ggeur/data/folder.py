"""Read a folder of given embeddings (``data.type: embeddings@ggeur``)."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.printable import get_logger

from .embeddings import DataSet, Domain, Embeddings
from .images.layout import (
    is_there,
    read_class_names,
    read_text,
    shown,
    split_problem,
    unreadable_named,
)
from .labels import NAMES, POSITIONS, classes_of, numbered
from .registry import register_reader
from .rows import Given, Rows, read_npz
from .split import split_domain

logger = get_logger(__name__)

LAYOUTS = (
    "Accepted layouts of data.root: <domain>.npz for each domain; or "
    "<domain>/train.npz and <domain>/test.npz for each domain; or train.npz and "
    "test.npz (one domain). Each file holds the arrays 'features' [n, D] and 'labels' "
    "[n]."
)
_SPLITS = ("train", "test")
_VALIDATION = ("val", "valid", "validation", "dev")
#: Suffixes of files that may hold rows, but are not read here.
_NOT_READ = (".npy", ".csv", ".tsv", ".parquet", ".feather", ".pt", ".pkl", ".h5")
#: A file about classes beside a folder's embeddings, without its suffix.
TEXT = "text"


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

    Other files may stand beside these: ``class_names.txt`` (one name in each line,
    class 0 first), ``encoder.txt`` (one line), and ``text.npz`` (see `is_text_file`).
    Whole-number labels are then positions in ``class_names.txt``, or
    in the array ``class_names`` of their own file. Without a list all labels are names,
    and give the classes in order: numbers by size, or texts sorted. Other files are
    ignored. A warning names those that may hold rows, such as ``.npy`` files.

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
        held = {
            path: Rows.of(**arrays.pop(path), where=str(path)) for path in [*arrays]
        }
        class_names, how = _classes(root, held)
        read = {
            (domain, split): _as_rows(held.pop(path), class_names, how, domain)
            for domain, paths in files.items()
            for split, path in paths.items()
        }
        domains = [
            split_domain(read[name, ""], splits, seed)
            if "" in files[name]
            else Domain(name, read[name, "train"], read[name, "test"])
            for name in sorted(files)
        ]
        given = Given(how)
        return DataSet(tuple(domains), class_names, _encoder(root), given=given)


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
    folders = [
        path
        for path in root.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    ]
    nested = {path.name: parts for path in folders if (parts := _npz_in(path))}
    if single:
        _refuse_validation(here)
    present = [name for group in (files, single, nested) for name in sorted(group)]
    if sum(map(bool, (files, single, nested))) > 1:
        raise DataError(
            f"{root}: the files {present} have different layouts. Use one layout, and "
            f"move other .npz files elsewhere. {LAYOUTS}"
        )
    unread = [
        path for place in (root, *folders) for path in _with_suffix(place, *_NOT_READ)
    ]
    names = shown([path.relative_to(root).as_posix() for path in unread])
    if not present:
        but = f", but it has {names}" if unread else ""
        raise DataError(f"{root}: the folder has no .npz file{but}. {LAYOUTS}")
    if unread:
        logger.warning(
            "%s: %d files are ignored, because only .npz files are read (%s). Write "
            "their rows with numpy.savez(path, features=..., labels=...)",
            root,
            len(unread),
            names,
        )
    if problem := split_problem([*files, *nested]):
        raise DataError(f"{root}: the files {problem}. {LAYOUTS}")
    if single:
        _check_pair(root, single)
        return {"all": single}
    for name, parts in nested.items():
        _check_pair(root / name, parts)
    return files or nested


def _npz_in(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in _with_suffix(folder, ".npz"):
        if not is_there(path):
            continue
        if path.stem in found:
            raise DataError(
                f"{path}: {found[path.stem].name} is there, too. Keep one of them."
            )
        found[path.stem] = path
    return found


def _with_suffix(folder: Path, *suffixes: str) -> list[Path]:
    """What a folder holds with these suffixes in any case, without hidden files."""
    # Not glob, because glob skips a folder that it may not list.
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith(".")
    )


def _check_pair(folder: Path, files: dict[str, Path]) -> None:
    missing = [f"{split}.npz" for split in _SPLITS if split not in files]
    extra = [path.name for name, path in sorted(files.items()) if name not in _SPLITS]
    if missing:
        raise DataError(f"{folder}: there is no {' and no '.join(missing)}. {LAYOUTS}")
    _refuse_validation(files)
    if extra:
        raise DataError(
            f"{folder}: there must be no .npz file beside train.npz and test.npz, but "
            f"there is {extra}. Move it elsewhere."
        )


def _refuse_validation(files: Mapping[str, Path]) -> None:
    held = [path for name, path in files.items() if name in _VALIDATION]
    if held:
        raise DataError(
            f"{held[0]}: no file of validation rows is read. Move it elsewhere. "
            "data.splits takes validation rows from the training rows; "
            "FederatedData.from_arrays(validation=...) takes your own."
        )


def _as_rows(rows: Rows, names: Sequence[str], how: str, domain: str) -> Embeddings:
    labels = rows.named()
    assert labels is not None, "read_npz needs them"
    is_text = labels.dtype.kind == "U"
    codes = numbered(labels, names, NAMES if is_text else how, rows.where)
    return Embeddings.of_rows(rows, codes, domain)


def _classes(root: Path, held: Mapping[Path, Rows]) -> tuple[tuple[str, ...], str]:
    """The classes of all files, and how their labels are given.

    A list of classes is ``class_names.txt``, or the array `class_names` of all files.
    """
    for rows in held.values():
        if len(rows) == 0:
            raise DataError(
                f"{rows.where}: 'features' and 'labels' have no rows. Remove the file."
            )
    named = read_class_names(root)
    lists = {rows.class_names for rows in held.values()}
    if named is None and len(lists) == 1:
        (named,) = lists
    parts = {
        file.name if file.parent == root else f"{file.parent.name}/{file.name}": labels
        for file, rows in held.items()
        if (labels := rows.named()) is not None
    }
    names, how = classes_of(parts, named, str(root))
    if lists == {names} and all(
        rows.labels.dtype.kind != "U" for rows in held.values()
    ):
        how = POSITIONS
    return names, how


def _encoder(root: Path) -> str:
    path = root / "encoder.txt"
    text = read_text(path).strip() if is_there(path) else ""
    if len(text.splitlines()) > 1:
        raise DataError(f"{path}: must hold one line that describes the encoder.")
    return text or "unknown (precomputed embeddings)"


def is_text_file(path: Path) -> bool:
    """Whether an archive holds text features: a ``logit_scale`` and no ``labels``."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False
    return "logit_scale.npy" in names and "labels.npy" not in names
