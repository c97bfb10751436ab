"""What a head expects of rows: one record, and the one place that compares them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import DataError, listed, shown
from federatedscope_ggeur.printable import get_logger

from .labels import NAMES, POSITIONS, matched
from .rows import NOT_KNOWN, Given, Rows, is_unit_length, shared
from .transforms import transform_rows

logger = get_logger(__name__)

_OPTION = f"--labels {NAMES} or --labels {POSITIONS}"


@dataclass(frozen=True)
class Expected:
    """What a head expects of rows.

    Attributes
    ----------
    class_names : tuple of str
    encoder : str
        The name of the encoder, with the transform.
    given : Given
        How the rows were given that the head was made from. The same transform is
        applied to all rows, and labels are read in the same way.
    """

    class_names: tuple[str, ...]
    encoder: str = ""
    given: Given = NOT_KNOWN

    def take(self, rows: Any, pixels: bool = False, where: str = "features") -> Tensor:
        """Rows as the head takes them: checked, in order, transformed; [n, D'].

        Parameters
        ----------
        rows : Rows, or anything that `Rows.of` reads
        pixels : bool
            Whether the head is a network, which takes rows of uint8.

        Raises
        ------
        DataError
            The rows have a fault, other titles or another dimension.
        """
        given = self.given
        if not isinstance(rows, Rows):
            rows = Rows.of(rows, where=where)
        features = shared(rows.in_order_of(given.titles))
        if not pixels:
            features = features.float()
        if given.dim not in (None, features.shape[1]):
            raise DataError(
                f"{rows.where}: rows of shape {list(features.shape)} do not fit: the "
                f"head takes rows of {given.dim} columns, not {features.shape[1]}"
            )
        if given.unit_length and not is_unit_length([features]):
            logger.warning(
                "%s: the head was made from rows of length 1, but these have other "
                "lengths; scale them as those were",
                rows.where,
            )
        return transform_rows(features, given.transform)

    def numbers(self, rows: Rows, how: str = "") -> np.ndarray:
        """The class number of each label: int64 array of shape [n]; -1 for no class.

        Parameters
        ----------
        rows : Rows with labels
        how : {"names", "positions", ""}
            How to read the labels; by default as the head remembers.

        Raises
        ------
        DataError
            The head does not know how its labels were given, and both ways are possible
            and differ.
        """
        labels, how = rows.named(), how or self.given.labels
        if rows.class_names is not None:
            how = NAMES
        if how:
            return matched(labels, self.class_names, how)
        by_name, by_place = (
            matched(labels, self.class_names, each) for each in (NAMES, POSITIONS)
        )
        fits = [bool((found >= 0).all()) for found in (by_name, by_place)]
        if fits[0] != fits[1]:
            return by_name if fits[0] else by_place
        if not np.array_equal(by_name, by_place):
            row = int((by_name != by_place).argmax())
            names = (*map(shown, self.class_names), "none")
            raise DataError(
                f"{rows.where}: the label {shown(labels[row].item())} in row {row} may "
                f"be a name (class {names[by_name[row]]}) or a position in the list of "
                f"classes (class {names[by_place[row]]}), and nobody recorded which; "
                f"say {_OPTION}"
            )
        return by_name

    def labelled(
        self, rows: Any, labels: Any = None, how: str = ""
    ) -> tuple[Tensor, Tensor]:
        """Rows as the head takes them, and the class number of each.

        Raises
        ------
        DataError
            As `take` and `numbers`; or there are no labels, or a label is of no class.
        """
        if not isinstance(rows, Rows):
            rows = Rows.of(rows, labels, "arrays")
        if rows.labels is None:
            raise DataError(
                f"{rows.where}: has no labels; add them as the array or column 'labels'"
            )
        found = self.numbers(rows, how)
        if said := self.unknown(rows, found):
            raise DataError(f"{said}. Correct the labels, or name the classes")
        return self.take(rows), torch.from_numpy(found)

    def unknown(self, rows: Rows, numbers: np.ndarray) -> str:
        """A line on the labels whose `numbers` are -1; "" if there are none."""
        bad = np.flatnonzero(numbers < 0)
        if not len(bad):
            return ""
        labels = rows.named()
        counts = Counter(labels[bad].tolist())
        names = [f"{shown(label)} ({n})" for label, n in counts.most_common()]
        fits = [
            how
            for how in (NAMES, POSITIONS)
            if (matched(labels, self.class_names, how) >= 0).all()
        ]
        hint = f". As {fits[0]} all are known; see {_OPTION}" if fits else ""
        return (
            f"{rows.where}: {len(bad)} labels, the first in row {bad[0]}, are none of "
            f"the {len(self.class_names)} classes: {listed(names, 5)}{hint}"
        )
