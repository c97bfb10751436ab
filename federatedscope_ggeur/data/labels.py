"""Labels of rows: read as whole numbers or texts, and matched with class names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Number, Real
from typing import Any

import numpy as np
import torch

from federatedscope_ggeur.errors import DataError, listed, shown
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)

#: How labels are given: a label is the name of its class, or the place of this name in
#: a list, counted from 0.
NAMES, POSITIONS = "names", "positions"
#: The number of classes that whole numbers may name.
_MOST_CLASSES = 100_000
#: The kinds of entries that may be labels, see `kind_of_entry`.
_KINDS = ("text", "bytes", "truth value", "number")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def first_of(bad: Any) -> int | None:
    """The first place where the mask `bad` [n] is True; None if it is nowhere."""
    return int(bad.nonzero()[0][0]) if bad.any() else None


def refuse_negative(name: str, column: Any, where: str) -> None:
    if (row := first_of(column < 0)) is not None:
        raise DataError(
            f"{where}: '{name}' holds the negative {name[:-1]} {int(column[row])} in "
            f"row {row}. {name.capitalize()} must be 0 or more."
        )


def as_array(values: Any, where: str = "") -> np.ndarray:
    """Turn an array, a Tensor, a column of a data frame or a list into a numpy array.

    Raises
    ------
    DataError
        Entries of a masked array are masked.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:  # numpy has no such type
            values = values.float()
    if isinstance(values, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(values).reshape(len(values), -1).any(axis=1)
        if (row := first_of(masked)) is not None:
            raise DataError(
                f"{where}: row {row} has a masked entry. Fill in or remove such rows."
            )
        values = values.data
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:  # rows of several lengths
        raise DataError(f"{where}: must be an array: {error}") from None


def read_labels(values: Any, where: str) -> np.ndarray:
    """Labels as int64 or as texts, array of shape [n].

    Whole numbers of any type become int64, texts of any type str. Truth values are the
    texts "False" and "True".

    Raises
    ------
    DataError
        A label is missing, masked, no whole number, or of another type than the first
        one. The error names the row.
    """
    array = as_array(values, f"{where}: 'labels'")
    if array.ndim != 1:
        raise DataError(
            f"{where}: 'labels' must have the shape [n], but has the shape "
            f"{list(array.shape)}."
        )
    if array.dtype.kind in "OS":
        array = of_one_kind(array, where)
    kind = array.dtype.kind
    if kind == "b":
        return array.astype(str)
    if kind == "U":
        _refuse_row(array == "", array, where, "is empty")
        return array
    if kind in "fiu":
        return whole_numbers("labels", array, where)
    raise DataError(
        f"{where}: 'labels' must hold whole numbers or names, but has dtype "
        f"{array.dtype}."
    )


def whole_numbers(name: str, array: np.ndarray, where: str) -> np.ndarray:
    """`array` as int64. Floats are accepted if they are whole numbers.

    Raises
    ------
    DataError
        An entry is no whole number, or too large. The error names the row.
    """
    if array.dtype.kind not in "fiu":
        raise DataError(
            f"{where}: '{name}' must hold whole numbers, but has dtype {array.dtype}. "
            "Number them from 0."
        )
    flat = array.reshape(-1)
    is_whole = np.isfinite(flat) & (flat == np.round(flat))
    if (row := first_of(~is_whole)) is not None:
        raise DataError(
            f"{where}: '{name}' must hold whole numbers, but row {row} is {flat[row]}. "
            "Number them from 0."
        )
    is_float = array.dtype.kind == "f"
    large = abs(flat) >= 2.0**63 if is_float else flat.astype(np.int64) != flat
    if (row := first_of(large)) is not None:
        raise DataError(
            f"{where}: '{name}' ({array.dtype}) holds {flat[row]} in row {row}, which "
            "is too large for int64. Number them from 0."
        )
    return array.astype(np.int64)


def of_one_kind(array: np.ndarray, where: str) -> np.ndarray:
    """Labels [n] that are objects, or bytes, as an array of a type; bytes as texts.

    Raises
    ------
    DataError
        A label is missing, of another type than the first one, or not in UTF-8.
    """
    kinds = [kind_of_entry(entry) for entry in array]
    for row, kind in enumerate(kinds):
        if kind not in _KINDS or kind != kinds[0]:
            known = kind in _KINDS
            problem = f"is no {kinds[0]} like row 0" if known else "is no label"
            _refuse_row(np.arange(len(array)) == row, array, where, problem)
    if kinds and kinds[0] == "bytes":
        return _decoded(array.tolist(), where)
    try:
        return np.array(array.tolist())
    except (OverflowError, ValueError) as error:
        raise DataError(f"{where}: 'labels' cannot be read: {error}") from None


def kind_of_entry(entry: object) -> str:
    """What an entry can be compared with; "" if it is missing."""
    if isinstance(entry, (bool, np.bool_)):
        return "truth value"
    if isinstance(entry, (str, bytes)):
        return "bytes" if isinstance(entry, bytes) else "text"
    # Only numbers are compared with themselves: arrays and pandas' NA raise errors.
    if entry is None or (isinstance(entry, Number) and entry != entry):
        return ""
    return "number" if isinstance(entry, Real) else type(entry).__name__


def _decoded(labels: Sequence[bytes], where: str) -> np.ndarray:
    texts = []
    for row, label in enumerate(labels):
        try:
            texts.append(label.decode("utf-8"))
        except UnicodeDecodeError:
            raise DataError(
                f"{where}: 'labels' holds bytes in row {row}, {shown(label)}, that are "
                "not UTF-8. Save names as text."
            ) from None
    return read_labels(np.array(texts, dtype=str), where)


def _refuse_row(bad: np.ndarray, labels: np.ndarray, where: str, problem: str) -> None:
    if (row := first_of(bad)) is not None:
        (label,) = labels[[row]].tolist()
        raise DataError(
            f"{where}: 'labels' must hold whole numbers or names, but row {row}, "
            f"{shown(label)}, {problem}."
        )


def checked_names(names: Iterable[Any], where: str) -> tuple[str, ...]:
    """Class names as texts.

    Raises
    ------
    DataError
        There is no name. A name is empty or missing, or occurs twice, or the names
        have no order.
    """
    if isinstance(names, (str, bytes, Set)):
        raise DataError(
            f"{where}: must list the names of the classes in order, got {names!r}"
        )
    given = list(names)
    if not given:
        raise DataError(
            f"{where}: names no class; name every class, or leave the list out."
        )
    for place, name in enumerate(given):
        if isinstance(name, str) and not name:
            raise DataError(f"{where}: name {place} is empty; name every class.")
    read = read_labels(as_array(given, where), where).tolist()
    texts = tuple(map(str, read))
    twice = [name for place, name in enumerate(texts) if name in texts[:place]]
    if twice:
        raise DataError(f"{where}: repeats the name {shown(twice[0])}; name each once.")
    return texts


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """The names without repetition: numbers by size, other names as texts."""
    ordered = sorted(set(names))
    if all(map(_NUMBER.fullmatch, ordered)):
        ordered.sort(key=float)
    return tuple(ordered)


def classes_of(
    parts: Mapping[str, np.ndarray], named: Iterable[str] | None, where: str
) -> tuple[tuple[str, ...], str]:
    """The classes of a data set, and how its labels were given.

    Parameters
    ----------
    parts : mapping from source to labels
        From `read_labels`.
    named : iterable of str, or None
        The names of all classes in order, if somebody gave them. By default they are
        the names among the labels; see `in_order`.
    where : str

    Raises
    ------
    DataError
        Some labels are texts and others numbers, or numbers are too large.
    """
    texts = [source for source, labels in parts.items() if labels.dtype.kind == "U"]
    numbers = [source for source in parts if source not in texts]
    if texts and numbers:
        raise DataError(
            f"{where}: labels are names in {texts[0]}, but numbers in {numbers[0]}. "
            "Use one kind in all files."
        )
    if named is not None:
        return tuple(named), NAMES if texts else POSITIONS
    held = np.unique(np.concatenate([np.unique(part) for part in parts.values()]))
    if numbers:
        _check_class_numbers(held, where)
    return in_order(map(str, held.tolist())), NAMES


def _check_class_numbers(held: np.ndarray, where: str) -> None:
    """Refuse numbers that can be no classes; say what few people want."""
    largest = int(held[-1])
    if largest >= _MOST_CLASSES:
        raise DataError(
            f"{where}: the label {largest} is too large for a class. Number the "
            "classes from 0, or write labels as texts if they are names."
        )
    if held[0] < 0:  # such labels do not count classes, so they have no gaps
        if held[0] == -1 and 0 in held:
            logger.warning(
                "%s: the label -1 is the name of a class. If it marks rows without a "
                "label, leave these rows out",
                where,
            )
        return
    missing = sorted(set(range(largest + 1)).difference(held.tolist()))
    if missing:
        logger.warning(
            "%s: no row has the label %s. The %d labels that occur are the names of "
            "the classes, and class number 0 is '%s'. Number the labels from 0 without "
            "gaps, or name all classes in class_names.txt or by class_names",
            where,
            listed(list(map(str, missing)), 5),
            len(held),
            held[0],
        )


def matched(labels: np.ndarray, names: Sequence[str], how: str) -> np.ndarray:
    """The class number of each label: int64 array of shape [n]; -1 for no class.

    Names are matched as texts first, then as numbers: 3.0 is the class "3", if no class
    is called "3.0". As positions, only texts that are no numbers can be names.
    """
    values, inverse = np.unique(labels, return_inverse=True)
    place = {name: number for number, name in enumerate(names)}
    numbers: dict[float, int] = {}
    for number, name in enumerate(names):
        if _NUMBER.fullmatch(name):  # two names of one number are found as texts only
            numbers[float(name)] = -1 if float(name) in numbers else number
    matches = np.full(len(values), -1, dtype=np.int64)
    for row, value in enumerate(map(str, values.tolist())):
        is_number = _NUMBER.fullmatch(value)
        if how == POSITIONS and is_number:
            at = float(value)
            if at in range(len(names)):
                matches[row] = int(at)
        else:
            other = numbers.get(float(value), -1) if is_number else -1
            matches[row] = place.get(value, other)
    return matches[inverse.reshape(-1)]


def numbered(
    labels: np.ndarray, names: Sequence[str], how: str, where: str
) -> np.ndarray:
    """The class number of each label, see `matched`.

    Raises
    ------
    DataError
        A label is of no class. The error names the row.
    """
    numbers = matched(labels, names, how)
    if (numbers >= 0).all():
        return numbers
    row = int((numbers < 0).argmax())
    if how == POSITIONS and labels.dtype.kind != "U":
        raise out_of_range(int(labels[row]), row, len(names), where)
    raise DataError(
        f"{where}: row {row} has the label {shown(labels[row].item())}, which is none "
        f"of the {len(names)} classes. Correct the label, or name the class."
    )


def out_of_range(label: int, row: int, classes: int, where: str) -> DataError:
    """The error for a class number that is negative or too large."""
    other = "name the missing classes"
    if label < 0:
        other = "leave out the list of classes, so that a label is a name"
    return DataError(
        f"{where}: label {label} in row {row} of 'labels' is out of range: with "
        f"{classes} classes, labels go from 0 to {classes - 1}. Correct the label or "
        f"{other}."
    )
