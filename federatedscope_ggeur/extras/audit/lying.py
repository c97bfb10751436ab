"""A client that follows the protocol of secure sums, but lies about its rows.

Only audits of runs with secure sums import this module, since that extra may not be
there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.extras.secure_sums.participant import Participant
from federatedscope_ggeur.extras.secure_sums.settings import SumSettings
from federatedscope_ggeur.extras.secure_sums.vectors import (
    ClientRows,
    Named,
    encode,
    svec,
)

from .base import Claim


@dataclass(frozen=True)
class _Claimed:
    """The vectors of a lying client, from its own rows and invented rows.

    It replaces `ClientRows`. The liar always denies that it owns nearly all rows of a
    class, or of all classes. Its invented rows are equally long along every axis, also
    where dimensions are scaled.

    Attributes
    ----------
    rows : ClientRows
    claim : Claim
    exponents : Tensor of shape (D,), int64
        Those of the scale of `rows`; 0 without one.
    units : list of float
        By what the claimed scatter is multiplied on the unscaled rows.
    """

    rows: ClientRows
    claim: Claim
    exponents: Tensor
    units: list[float]

    @property
    def features(self) -> Tensor:
        return self.rows.features

    @property
    def labels(self) -> Tensor:
        return self.rows.labels

    @property
    def fits(self) -> bool:
        return True

    def counts(self) -> np.ndarray:
        return self.rows.counts() + self.claim.rows.numpy().view(np.uint64)

    def scaled(self, exponents: Tensor) -> _Claimed:
        self.units.append(4.0 ** int(exponents.min()))
        return replace(self, rows=self.rows.scaled(exponents), exponents=exponents)

    def sizes(self, named: Named) -> np.ndarray:
        told = self.rows.sizes(named)
        told[-1] = 0
        return told

    def means(self, named: Named) -> np.ndarray:
        told = self.rows.means(named)
        told[len(named.classes) * self.rows.settings.dim :] = 0
        return told

    def pooled(self, named: Named, origin: Tensor) -> np.ndarray:
        o, claim = origin.double(), self.claim
        rows = int(claim.rows[list(named.classes)].sum())
        along = 4.0 ** (self.exponents.min() - self.exponents).double()
        about = claim.scatter * torch.diag(along) + rows * torch.outer(o, o)
        more = encode(svec(about.numpy()), self.rows.settings.bits)
        return self.rows.pooled(named, origin) + more


def lying(
    number: int, features: Tensor, labels: Tensor, settings: SumSettings, claim: Claim
) -> Participant:
    """Make a client that follows the protocol but lies about its rows."""
    liar = Participant(number, features, labels, settings)
    own, unscaled = ClientRows(features, labels, settings), torch.zeros(settings.dim)
    rows = _Claimed(own, claim, unscaled.long(), [1.0])
    liar._rows = rows  # type: ignore[assignment]
    return liar


def in_units(claim: Claim, liar: Participant) -> Claim:
    """The claim, after the run, with its scatter in the units of the rows."""
    rows = liar._rows
    assert isinstance(rows, _Claimed)
    return replace(claim, scatter=claim.scatter * rows.units[-1])
