"""Find out which client's model predicts each row, if clients have own models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from federatedscope_ggeur.errors import DataError, listed, shown

if TYPE_CHECKING:
    import numpy as np

    from .records import ClientInfo

_LISTED = 20


def numbers_of_rows(
    clients: Any, rows: int, known: Sequence[ClientInfo], shared: bool, name: str
) -> np.ndarray:
    """The number of the client whose model predicts each row: int64 array [rows].

    Parameters
    ----------
    clients : int or sequence of int
        One number for all rows, or one for each row. None is allowed only if there is
        just one client.
    rows : int
    known : sequence of ClientInfo
        The clients that have their own model.
    shared : bool
        Whether there is a global model, number 0.
    name : str
        The name of `clients` in error messages.

    Raises
    ------
    DataError
        `clients` is missing or wrong. The error names the clients and their domains.
    """
    # Imported here, because reading and writing results needs no numpy.
    import numpy as np

    if clients is None and len(known) == 1:
        clients = known[0].number
    if clients is None:
        raise DataError(
            f"{name}: every client has its own model, so say which client's model is "
            f"to predict: one number for all rows, or one for each row.{_those(known)}"
            + (" 0 is the global model." if shared else "")
        )
    try:
        given = np.asarray(clients)
    except (TypeError, ValueError):  # rows of several lengths
        given = np.empty(1, dtype=object)
    if not given.size:  # numpy takes an empty list for floats
        given = given.astype(np.int64)
    if given.ndim > 1 or given.dtype.kind not in "iu":
        raise DataError(
            f"{name}: must be a client's number, or one number for each row, got "
            f"{shown(clients)}.{_those(known)}"
        )
    if given.ndim and len(given) != rows:
        raise DataError(
            f"{name}: must be one number, or one for each of the {rows} rows, got "
            f"{len(given)}"
        )
    numbers = {info.number for info in known} | ({0} if shared else set())
    unknown = [n for n in np.unique(given).tolist() if n not in numbers]
    if unknown:
        raise DataError(f"{name}: there is no client {unknown[0]}.{_those(known)}")
    return np.broadcast_to(given.astype(np.int64), (rows,)).copy()


def _those(known: Sequence[ClientInfo]) -> str:
    domains = [shown(info.domain, 60).strip("'\"") for info in known]
    names = [f"{info.number} ({d})" for info, d in zip(known, domains)]
    return f" The clients and their domains: {listed(names, _LISTED)}."
