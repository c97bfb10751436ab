"""The one door for rows: whatever their source, they become `Rows`, or a fault."""

from __future__ import annotations

import csv
import math
import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import DataError, listed, shown

from .labels import (
    as_array,
    checked_names,
    first_of,
    kind_of_entry,
    read_labels,
    whole_numbers,
)

#: The suffixes of files of rows, in any case.
_ROW_FILES = (".npz", ".npy", ".csv")
#: The titles of the column of labels in a csv file.
_LABELS = ("label", "labels")
_NEEDED, _OPTIONAL = ("features", "labels"), ("image_shape", "users", "class_names")
#: Rows that are checked at a time.
_CHECKED = 1 << 14
#: The largest value of an embedding. Messages may hold none above it
#: (`geometry.LARGEST_EMBEDDING`).
_LARGEST = 1e15
#: How far from 1 the length of rows may be that were scaled to length 1.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Given:
    """How rows were given, and what was done to them since.

    Attributes
    ----------
    labels : {"names", "positions", ""}
        Whether a label is the name of its class or the place of this name in a list.
        "" if nobody knows.
    titles : tuple of str or None
        The titles of the columns.
    dim : int or None
        D before the transform.
    transform : str
        What was done to the rows: one of `transforms.TRANSFORMS`, or a projection.
    unit_length : bool or None
        Whether every row had the length 1 before the transform.
    """

    labels: str = ""
    titles: tuple[str, ...] | None = None
    dim: int | None = None
    transform: str = "none"
    unit_length: bool | None = None

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Given:
        """Read what `plain` wrote; unknown fields are ignored."""
        known = {f.name: plain[f.name] for f in fields(cls) if f.name in plain}
        if known.get("titles") is not None:
            known["titles"] = tuple(known["titles"])
        return cls(**known)

    def plain(self) -> dict[str, Any]:
        """The record as plain values, for a file."""
        held = asdict(self)
        return {**held, "titles": None if self.titles is None else list(self.titles)}


NOT_KNOWN = Given()


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as they came in, checked.

    Attributes
    ----------
    features : array of shape [n, D], float32; or uint8, which may be pixels
    where : str
        The source of the rows. Errors start with it.
    labels : array of shape [n], int64 or str, or None
        From `read_labels`. They are class numbers or names; `Expected` reads them.
    titles : tuple of str, of length D, or None
        The titles of the columns.
    class_names : tuple of str or None
        The source's own list of classes. `labels` are places in it.
    image_shape : tuple of int, or None
        The shape of an image, if the rows are pixels.
    users : array of shape [n], int64, or None
    """

    features: np.ndarray
    where: str
    labels: np.ndarray | None = None
    titles: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    image_shape: tuple[int, ...] | None = None
    users: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        features: Any,
        labels: Any = None,
        where: str = "arrays",
        class_names: Any = None,
        image_shape: Any = None,
        users: Any = None,
    ) -> Rows:
        """Rows of arrays, Tensors, lists or a data frame.

        Raises
        ------
        DataError
            Shapes, types or values are wrong. The error names the first wrong row.
        """
        titles = _titles_of(features, where)
        array = as_array(features, f"{where}: 'features'")
        array = _numbers(array, titles, where)
        check_shapes(array, None, where)
        if array.dtype != np.uint8:  # they may be pixels
            array = _as_float32(array, where)
            check_values(array, where)
        read = None if labels is None else read_labels(labels, where)
        check_shapes(array, read, where)
        own = None
        if class_names is not None:
            own = checked_names(class_names, f"{where}: 'class_names'")
        if users is not None:
            users = whole_numbers("users", as_array(users, where), where)
        shape = None
        if image_shape is not None:
            sides = whole_numbers("image_shape", as_array(image_shape, where), where)
            shape = tuple(sides.reshape(-1).tolist())
        return cls(array, where, read, titles, own, shape, users)

    @classmethod
    def of_file(cls, path: str | Path, titles: Sequence[str] | None = None) -> Rows:
        """Read embeddings from an npz, npy or csv file.

        An npz file holds ``features`` and, if they are known, ``labels``; and maybe
        ``class_names``, the list that whole-number labels are places in. An npy file
        holds the features alone. Each line of a csv file holds the numbers of one row;
        the first line may hold titles instead. A column with the title ``label`` holds
        labels. `titles` are those that the caller expects; if ``label`` is one of them,
        the column holds features.

        Raises
        ------
        DataError
            The file cannot be read; the message names the problem.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if not is_row_file(path.name):
            raise DataError(
                f"{path}: is no file of rows, whose names end with .npz, .npy or .csv"
            )
        try:
            if suffix == ".csv":
                return _of_csv(path, titles)
            if suffix == ".npy":
                with open(path, "rb") as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
                return cls.of(array, where=str(path))
            held = read_npz(path, ("features",), ("labels", "class_names"))
        except OSError as error:
            raise DataError(f"{path}: cannot read the file: {error.strerror}") from None
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path}: the file is no npy array: {error}") from None
        return cls.of(where=str(path), **held)

    def __len__(self) -> int:
        return len(self.features)

    def named(self) -> np.ndarray | None:
        """The labels, by their names if the source has its own list of classes.

        Raises
        ------
        DataError
            A label is no place in the list.
        """
        if self.labels is None or self.class_names is None:
            return self.labels
        if self.labels.dtype.kind == "U":
            return self.labels
        bad = (self.labels < 0) | (self.labels >= len(self.class_names))
        if (row := first_of(bad)) is not None:
            raise DataError(
                f"{self.where}: label {self.labels[row]} in row {row} is no place in "
                f"the file's own 'class_names', which has {len(self.class_names)} names"
            )
        return np.array(self.class_names)[self.labels]

    def in_order_of(self, titles: Sequence[str] | None) -> np.ndarray:
        """The features with their columns in the order of `titles`.

        Raises
        ------
        DataError
            The rows have other titles.
        """
        if titles is None or self.titles is None or self.titles == tuple(titles):
            return self.features
        unknown = [name for name in self.titles if name not in titles]
        missing = [name for name in titles if name not in self.titles]
        if unknown or missing:
            parts = (("unknown", unknown), ("missing", missing))
            said = [
                f"{what} {listed(list(map(shown, names)), 5)}"
                for what, names in parts
                if names
            ]
            raise DataError(
                f"{self.where}: the columns differ from those that the head was made "
                f"from: {'; '.join(said)}. Give the same columns, in any order"
            )
        place = {name: number for number, name in enumerate(self.titles)}
        columns = [place[name] for name in titles]
        return np.ascontiguousarray(self.features[:, columns])


def is_row_file(name: str) -> bool:
    """Whether a file of that name holds rows that `Rows.of_file` reads."""
    return name.lower().endswith(_ROW_FILES)


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


def check_values(features: np.ndarray, where: str) -> None:
    """Refuse features that are not finite, or absurdly large.

    The `DataError` names `where` and the first such row.
    """
    # In pieces, because the result of a comparison is as large as its input.
    for first in range(0, len(features), _CHECKED):
        piece = features[first : first + _CHECKED]
        usable = abs(piece) <= _LARGEST  # False for NaN
        if not usable.all():
            row = first + int((~usable.all(axis=1)).argmax())
            value = float(piece[~usable][0])
            large = f"{value:g}, beyond +-{_LARGEST:g}"
            what = large if math.isfinite(value) else "NaN or inf"
            raise DataError(
                f"{where}: 'features' holds {what}; the first such row is {row}. "
                "Remove or recompute such rows."
            )


def is_unit_length(parts: Iterable[Tensor]) -> bool:
    """Whether each row of all parts has the length 1."""
    for part in parts:
        for piece in part.split(_CHECKED):
            if not ((piece.double().norm(dim=1) - 1).abs() < _ROUNDING).all():
                return False
    return True


def shared(array: np.ndarray) -> Tensor:
    """A tensor that shares the memory of `array`."""
    with warnings.catch_warnings():
        # Torch warns of arrays that cannot be written to. Nobody writes to rows.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def _titles_of(features: Any, where: str) -> tuple[str, ...] | None:
    """The titles of a data frame's columns; None if they only count from 0."""
    columns = getattr(features, "columns", None)
    return None if columns is None else _checked_titles(tuple(map(str, columns)), where)


def _checked_titles(titles: tuple[str, ...], where: str) -> tuple[str, ...] | None:
    if _counts(titles):
        return None
    twice = [name for place, name in enumerate(titles) if name in titles[:place]]
    if twice:
        raise DataError(
            f"{where}: two columns have the title {shown(twice[0])}; rename one"
        )
    return titles


def _counts(titles: Sequence[str]) -> bool:
    """Whether titles count from 0, as pandas gives them to arrays."""
    return list(titles) == [str(number) for number in range(len(titles))]


def check_shapes(features: Any, labels: Any, where: str) -> None:
    """Refuse features that are not [n, D], or labels (if any) that are not [n]."""
    for name, array, ndim, shape in (
        ("features", features, 2, "[n, D]"),
        ("labels", labels, 1, "[n]"),
    ):
        if array is not None and array.ndim != ndim:
            raise DataError(
                f"{where}: '{name}' must have the shape {shape}, but has the shape "
                f"{list(array.shape)}."
            )
    if features.shape[1] == 0:
        raise DataError(
            f"{where}: 'features' has no columns (D = 0). Embed the data again."
        )
    if labels is not None and len(features) != len(labels):
        raise DataError(
            f"{where}: 'features' has {len(features)} rows but 'labels' has "
            f"{len(labels)}; they must have the same length."
        )


def column_of(name: str, values: Any, rows: int, default: Any) -> np.ndarray:
    """`values` as an array with one entry for each row; `default` in all if None."""
    if values is None:
        return np.full(rows, default)
    column = as_array(values, name)
    if column.dtype.kind == "S":
        column = np.char.decode(column, "utf-8", "backslashreplace")
    if column.shape != (rows,):
        raise DataError(
            f"{name}: must be of shape ({rows},), one entry a row, got {column.shape}"
        )
    if column.dtype.kind == "O":
        kinds = [kind_of_entry(entry) for entry in column]
        wrong = np.array([not kind or kind != kinds[0] for kind in kinds])
    else:
        wrong = column != column  # NaN and NaT
    if (row := first_of(wrong)) is not None:
        (entry,) = column[[row]].tolist()
        raise DataError(
            f"{name}: row {row} has {shown(entry)}. Give every row an entry, all of "
            "one type."
        )
    try:
        if column.dtype.kind in "cO":
            sorted(set(column.tolist()))
    except TypeError as error:
        raise DataError(
            f"{name}: must hold texts, numbers or dates, which can be sorted: {error}"
        ) from None
    return column


def entries_of(column: Any) -> list:
    """The entries as Python's own values. Times are rounded down to microseconds."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "mM":
        unit, _ = np.datetime_data(column.dtype)
        # tolist() makes whole numbers of nanoseconds, which Python's times lack.
        if unit in ("ns", "ps", "fs", "as"):
            column = column.astype(f"{column.dtype.kind}8[us]")
    return column.tolist() if hasattr(column, "tolist") else list(column)


def mask_of(name: str, values: Any, rows: int) -> np.ndarray:
    """`values` as truth values, one for each row; False in all if None."""
    column = column_of(name, values, rows, False)
    if column.dtype.kind != "b":
        raise DataError(
            f"{name}: must be True or False for each row, but has dtype {column.dtype}"
        )
    return column


#: As many rows as a message may tell.
_MOST_WEIGHT = 2.0**40


def weights_of(values: Any, rows: int) -> Tensor:
    """What each row counts for: positive numbers, float64 of shape [n]."""
    column = column_of("weights", values, rows, 1)
    if column.dtype.kind not in "biuf":
        raise DataError(f"weights: must be numbers, but have dtype {column.dtype}")
    weights = torch.from_numpy(column.astype("float64"))
    bad = ~(torch.isfinite(weights) & (weights > 0)).numpy()
    if (row := first_of(bad)) is not None:
        raise DataError(
            f"weights: row {row} has {weights[row]:g}. Weights must be positive and "
            "finite."
        )
    if weights.sum() > _MOST_WEIGHT:
        raise DataError(
            f"weights: all weights sum to {float(weights.sum()):g}, more than "
            f"{_MOST_WEIGHT:g}. Scale them, for instance to the mean 1."
        )
    return weights


def _numbers(array: np.ndarray, titles: Sequence[str] | None, where: str) -> np.ndarray:
    """`array` with a dtype of numbers; columns of data frames may hold objects."""
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError):
            _refuse_cell(array, titles, where)
    if array.dtype.kind not in "fiu":
        raise DataError(
            f"{where}: 'features' must hold real numbers, but has dtype {array.dtype}."
        )
    return array


def _refuse_cell(array: np.ndarray, titles: Sequence[str] | None, where: str) -> None:
    """Name the first cell that is no number."""
    for row, cells in enumerate(array if array.ndim == 2 else ()):
        for column, cell in enumerate(cells):
            try:
                float(cell)
            except (TypeError, ValueError):
                name = shown(titles[column]) if titles else column
                raise DataError(
                    f"{where}: 'features' must hold real numbers, but column {name} "
                    f"has {shown(cell)} in row {row}."
                ) from None


def _as_float32(features: np.ndarray, where: str) -> np.ndarray:
    if features.dtype == np.float32:
        return np.ascontiguousarray(features)
    with np.errstate(over="ignore"):
        cast = np.ascontiguousarray(features, dtype=np.float32)
    bad = (np.isinf(cast) & np.isfinite(features)).any(axis=1)
    if (row := first_of(bad)) is not None:
        raise DataError(
            f"{where}: 'features' ({features.dtype}) holds values too large for "
            f"float32; the first such row is {row}. Scale the embeddings down."
        )
    return cast


def _of_csv(path: Path, expected: Sequence[str] | None) -> Rows:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot read the file: {error}") from None
    try:
        return _of_lines(lines, expected, str(path))
    except DataError as error:
        first = lines[0] if lines else []
        others = ";\t" if len(first) > 1 else ";\t "
        if not any(mark in cell for cell in first for mark in others):
            raise
        raise DataError(
            f"{str(error).rstrip('.')}. Separate columns by commas, and write numbers "
            "with a decimal point"
        ) from None


def _of_lines(
    lines: Sequence[list[str]], expected: Sequence[str] | None, where: str
) -> Rows:
    of_labels = [name for name in _LABELS if name not in (expected or ())]
    titles: list[str] = []
    if lines and _are_titles(lines, expected, of_labels, where):
        titles, lines = list(lines[0]), lines[1:]
    if not lines:
        raise DataError(f"{where}: the file has no rows of numbers")
    width = len(titles or lines[0])
    for number, line in enumerate(lines, 1):
        if len(line) != width:
            raise DataError(
                f"{where}: row {number}: it has not as many columns as the first line"
            )
    labels, places = None, [titles.index(name) for name in of_labels if name in titles]
    if len(places) > 1:
        raise DataError(f"{where}: the columns 'label' and 'labels' are both there")
    for place in places:
        titles.pop(place)
        labels = np.array([line.pop(place) for line in lines])
    for number, line in enumerate(lines, 1):
        wrong = [cell for cell in line if not _is_number(cell)]
        if wrong:
            raise DataError(f"{where}: row {number}: {shown(wrong[0])} is no number")
    rows = Rows.of(np.array(lines).astype(float), labels, where)
    named = _checked_titles(tuple(titles), where) if titles else None
    return Rows(rows.features, rows.where, rows.labels, named)


def _are_titles(
    lines: Sequence[Sequence[str]],
    expected: Sequence[str] | None,
    of_labels: Sequence[str],
    path: str,
) -> bool:
    """Whether the first line holds titles. They may be numbers.

    `of_labels` are the titles that a column of labels may have.

    Raises
    ------
    DataError
        It may as well be a row.
    """
    first = lines[0]
    others = [cell for cell in first if cell not in of_labels]
    if "" in others[:1] and len(others) > 1:
        raise DataError(
            f"{path}: the first column has no title, as an index has none; leave it "
            "out: to_csv(index=False)"
        )
    if sorted(others) == sorted(expected or [""]):
        return True
    if _counts(others) and len(first) > 1:
        return True
    numbers = [cell for cell in others if _is_number(cell)]
    if len(others) < len(first) or not numbers:
        return True
    if len(numbers) < len(others):
        wrong = next(cell for cell in others if not _is_number(cell))
        raise DataError(
            f"{path}: the first line has numbers, and {shown(wrong)}, which is none; "
            "give titles to all columns, or to none. If it is a label, add a first "
            "line with titles, in which the column of labels is called 'label'"
        )
    # Whole numbers above rows of fractions are titles, such as wavelengths.
    rows = [cell for line in lines[1:] for cell in line]
    if (
        all(cell.isdecimal() for cell in first)
        and len(set(first)) == len(first)
        and rows
        and all(map(_is_number, rows))
        and not any(cell.isdecimal() for cell in rows)
    ):
        raise DataError(
            f"{path}: the first line has whole numbers, which may be titles or a row; "
            "give the columns titles with letters, or write 1 as 1.0"
        )
    return False


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
