"""How the server makes the space of a run: of statistics and of totals of rows."""

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
    """What the server learns of where rows lie.

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
        """Fold in what a client's class statistics say."""
        self._totals = self._totals + Totals.of_statistics(statistics)

    def take(self, totals: Totals) -> None:
        """What is known of all clients' rows at once."""
        self._totals = totals

    def add(self, uploads: Iterable[TotalsUpload]) -> None:
        """Fold in the uploads of one window, in client order."""
        for upload in sorted(uploads, key=lambda upload: upload.client):
            self.told.add(upload.client)
            self._totals = self._totals + upload.totals
            # Of rows whose means are in already.
            spread = self._totals.spread + upload.within
            self._totals = replace(self._totals, spread=spread)

    def make(self, statistics: Statistics) -> Space:
        """The space of all rows told of; `statistics` are those of all clients.

        It stays raw, with a warning, where clients told of none.

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
