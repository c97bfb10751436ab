"""Makes the space of a run from statistics and totals of rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.exchanges.space.messages import TotalsUpload
from federatedscope_ggeur.federation.wire.schema import Statistics
from federatedscope_ggeur.geometry import Space, SpaceSettings, Totals
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)


class SpaceMaker:
    """Collects where clients' rows lie.

    Parameters
    ----------
    settings : SpaceSettings
    dim : int
        D of the embeddings.

    Attributes
    ----------
    told : set of int
        The clients whose totals are in.
    """

    def __init__(self, settings: SpaceSettings, dim: int):
        self._settings, self._dim = settings, dim
        self._totals = Totals.empty(dim)
        self.told: set[int] = set()

    def add_statistics(self, statistics: Statistics) -> None:
        """Add a client's class statistics."""
        self._totals = self._totals + Totals.of_statistics(statistics)

    def take(self, totals: Totals) -> None:
        """Take the totals of all clients at once."""
        self._totals = totals

    def add(self, uploads: Iterable[TotalsUpload]) -> None:
        """Add the uploads of one window, in client order."""
        for upload in sorted(uploads, key=lambda upload: upload.client):
            self.told.add(upload.client)
            self._totals = self._totals + upload.totals
            # the means of these rows are included already
            spread, squares = self._totals.spread + upload.within, self._totals.squares
            if upload.within_squares is not None:
                squares = squares + upload.within_squares
            self._totals = replace(self._totals, spread=spread, squares=squares)

    def make(self, statistics: Statistics) -> Space:
        """The space of all known rows; `statistics` are those of all clients.

        It stays raw, with a warning, if clients reported no rows.

        Raises
        ------
        StatisticsError
            The statistics do not suffice for a whitened space.
        """
        if self._totals.count:
            return self._settings.make(self._totals, statistics)
        logger.warning(
            "training is on raw embeddings: no client holds as many rows as %s asks "
            "for before it tells how they lie; lower it, or see to a rate that suits "
            "these embeddings",
            setting("min_samples"),
        )
        return Space.raw(self._dim)
