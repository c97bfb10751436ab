"""Reads the public rows of ``ggeur.privacy.dp.prior``."""

from __future__ import annotations

from pathlib import Path

from federatedscope_ggeur.data.rows import Rows
from federatedscope_ggeur.data.transforms import Expected
from federatedscope_ggeur.errors import DataError, setting, shown

from .noisy_release import PublicRows


def public_rows(path: str, expected: Expected, dim: int) -> PublicRows:
    """Class statistics of the public rows in a file.

    Parameters
    ----------
    path : str
        A file with labels that `Rows.of_file` reads.
    expected : Expected
        What the run's head expects of rows. Public rows are read and prepared in the
        same way.
    dim : int
        D of prepared rows.

    Raises
    ------
    DataError
        The file cannot be read, or it has no row of some class.
    """
    file, where = Path(path).expanduser(), setting("dp.prior")
    if not file.is_file():
        raise DataError(f"{where}: there is no file '{path}'")
    try:
        rows = Rows.of_file(file, expected.given.titles)
        features, labels = expected.labelled(rows)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    if features.shape[1] != dim:
        raise DataError(
            f"{where}: '{path}' has rows of {rows.features.shape[1]} dimensions; the "
            "run's embeddings have another number of dimensions"
        )
    names, held = expected.class_names, set(labels.tolist())
    missing = [name for number, name in enumerate(names) if number not in held]
    if missing:
        raise DataError(
            f"{where}: '{path}' has no row of class {shown(missing[0])}; every class "
            "needs at least one"
        )
    return PublicRows.of(features, labels, len(names))
