"""Makes the space of a run from clients' statistics and totals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.geometry import Space, SpaceSettings, Statistics, Totals
from federatedscope_ggeur.printable import get_logger

from .messages import TotalsUpload

logger = get_logger(__name__)


class SpaceMaker:
    """Collects totals of clients' rows and makes the space.

    Parameters
    ----------
    settings : SpaceSettings
    dim : int
        D of the embeddings.

    Attributes
    ----------
    told : set of int
        The clients whose totals have arrived.
    """

    def __init__(self, settings: SpaceSettings, dim: int):
        self._settings, self._dim = settings, dim
        self._totals = Totals.empty(dim)
        self.told: set[int] = set()

    def add_statistics(self, statistics: Statistics) -> None:
        """Add class statistics of a client, or of all at once."""
        self._totals = self._totals + Totals.of_statistics(statistics)

    def add(self, uploads: Iterable[TotalsUpload]) -> None:
        """Add the totals of one window of clients, in client order."""
        for upload in sorted(uploads, key=lambda upload: upload.client):
            self.told.add(upload.client)
            self._totals = self._totals + upload.totals
            # the means of these rows are included already
            spread, squares = self._totals.spread + upload.within, self._totals.squares
            if upload.within_squares is not None:
                squares = squares + upload.within_squares
            self._totals = replace(self._totals, spread=spread, squares=squares)

    def make(self, statistics: Statistics) -> Space:
        """Make the space from all known rows; `statistics` are those of all clients.

        The space stays raw, with a warning, if clients reported no rows.

        Raises
        ------
        StatisticsError
            The statistics do not suffice for a whitened space.
        """
        if self._totals.count:
            return self._settings.make(self._totals, statistics)
        logger.warning(
            "training uses raw embeddings, because no client has as many rows as %s "
            "requires for totals; lower it, or choose a learning rate that suits "
            "these embeddings",
            setting("min_samples"),
        )
        return Space.raw(self._dim)
