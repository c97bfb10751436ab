"""The temperature of a head that is made of totals, where no row can be left out.

Totals say how the rows of a class are spread about its mean, and how much of what they
say of a row comes from that row itself. So they say how the head scores rows that it
has not seen. Such scores are drawn, and choose the temperature as rows left out do.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from federatedscope_ggeur.rng import torch_generator

from .left_out import best_temperature, log_losses, spread_at_means, temperatures

_DRAWN = 4096
#: Rows are drawn from a multivariate t distribution with so many degrees of freedom:
#: real rows have longer tails than Gaussian ones. Measured in docs/heads.md.
_TAILS = 5


class NewRows(NamedTuple):
    """How a head scores rows that are not in its statistics.

    Attributes
    ----------
    counts : Tensor of shape (C',)
        The rows of each class, or the sums of their weights.
    means : Tensor of shape (C', C')
        Row a: the mean scores of new rows of class a.
    covariance : Tensor of shape (C', C')
        The covariance of the scores of the head's own rows about the means of their
        classes.
    scales : Tensor of shape (C',)
        How much farther from its mean the scores of a new row of each class lie.
    """

    counts: Tensor
    means: Tensor
    covariance: Tensor
    scales: Tensor

    def temperature(self) -> float:
        """The temperature with the least smoothed log-loss."""
        classes = len(self.counts)
        # The root that is symmetric: rounding of the covariance hardly moves it.
        even = (self.covariance + self.covariance.T) / 2
        values, basis = torch.linalg.eigh(even)
        root = basis * values.clamp(min=0).sqrt() @ basis.T
        labels = torch.arange(max(_DRAWN, classes)) % classes
        generator = torch_generator(0, "new rows")
        drawn = torch.randn(len(labels), classes, generator=generator).double()
        tails = torch.randn(len(labels), _TAILS, generator=generator).double()
        drawn *= ((_TAILS - 2) / tails.square().sum(dim=1, keepdim=True)).sqrt()
        scores = self.means[labels] + drawn @ root * self.scales[labels, None]
        by = temperatures(spread_at_means(self.means, self.counts))
        losses, _ = log_losses(scores, labels, by)
        shares = self.counts[labels] / self.counts[labels].sum()
        return best_temperature((losses @ shares).tolist(), by)[0]
