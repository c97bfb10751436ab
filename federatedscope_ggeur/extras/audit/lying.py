"""A client that follows the protocol of secure sums, but lies about its rows.

Only audits of runs with secure sums import this module, since that extra may not be
there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.extras.secure_sums.participant import Participant
from federatedscope_ggeur.extras.secure_sums.settings import MEANS, POOLED, SumSettings
from federatedscope_ggeur.extras.secure_sums.vectors import (
    ClientRows,
    Named,
    added,
    encode,
    svec,
)

from .base import Claim


@dataclass(frozen=True)
class _Claimed(ClientRows):
    """The vectors of a lying client, from its own rows and invented rows.

    The liar always denies that it owns nearly all rows of a class, or of all classes.
    """

    claim: Claim

    @property
    def fits(self) -> bool:
        return True

    def counts(self) -> np.ndarray:
        return super().counts() + self.claim.rows.numpy().view(np.uint64)

    def means(self, named: Named) -> np.ndarray:
        limbs, flags = self.settings.limbs(MEANS), len(named.classes) + 1
        told = super().means(named)
        told.reshape(limbs, -1)[:, -flags:] = 0
        return told

    def pooled(self, named: Named, origin: Tensor) -> np.ndarray:
        o, claim = origin.double(), self.claim
        rows = int(claim.rows[list(named.classes)].sum())
        about = claim.scatter * torch.eye(len(o)).double() + rows * torch.outer(o, o)
        limbs = self.settings.limbs(POOLED)
        more = encode(svec(about.numpy()), self.settings.fraction_bits, limbs)
        return added(super().pooled(named, origin), more, limbs)


def lying(
    number: int, features: Tensor, labels: Tensor, settings: SumSettings, claim: Claim
) -> Participant:
    """Make a client that follows the protocol but lies about its rows."""
    liar = Participant(number, features, labels, settings)
    liar._rows = _Claimed(features, labels, settings, claim)
    return liar
