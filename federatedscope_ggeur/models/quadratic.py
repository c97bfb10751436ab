"""The quadratic head: distances to class means, each in its class's own metric."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models.base import Model


class QuadraticHead(Model):
    """Logits ``offset_c - |R_c (x - mu_c)|^2 / 2`` with lower triangular ``R_c``.

    With ``R_c^T R_c`` the inverse of a class covariance these are the log densities of
    quadratic discriminant analysis. It is worked out, not trained, and has no last
    layer that others could train. Its representation is the logits themselves.

    Attributes
    ----------
    means : Parameter of shape (C, D)
    factors : Parameter of shape (C, D (D + 1) / 2)
        The lower triangles of ``R_c``, row by row; see `pack` and `unpack`.
    offsets : Parameter of shape (C,)
    """

    def __init__(self, in_features: int, num_classes: int):
        super().__init__(in_features, num_classes)
        triangle = in_features * (in_features + 1) // 2
        self.means = nn.Parameter(torch.zeros(num_classes, in_features))
        self.factors = nn.Parameter(torch.zeros(num_classes, triangle))
        self.offsets = nn.Parameter(torch.zeros(num_classes))
        self.reset()

    @property
    def classifier(self) -> nn.Linear:  # type: ignore[override]  # there is none
        raise ConfigError(_NO_LAST_LAYER)

    def last_input(self, features: Tensor) -> Tensor:
        raise ConfigError(_NO_LAST_LAYER)

    def reset(self, generator: torch.Generator | None = None) -> Model:
        """Means of zero, identities and offsets of zero; nothing is drawn."""
        with torch.no_grad():
            self.means.zero_()
            self.factors.copy_(
                pack(torch.eye(self.in_features)).expand_as(self.factors)
            )
            self.offsets.zero_()
        return self

    def represent(self, features: Tensor) -> Tensor:
        columns = []
        # Class by class: all R_c at once would take C D^2 numbers beside the rows.
        for mean, packed, offset in zip(self.means, self.factors, self.offsets):
            # First the difference, for x and mu_c may be large and close.
            whitened = (features - mean) @ unpack(packed, self.in_features).T
            columns.append(offset - whitened.square().sum(dim=1) / 2)
        return torch.stack(columns, dim=1)

    def classify(self, representation: Tensor) -> Tensor:
        return representation


def pack(triangular: Tensor) -> Tensor:
    """The lower triangle of a matrix [D, D], row by row: shape (D (D + 1) / 2,)."""
    rows, columns = torch.tril_indices(*triangular.shape)
    return triangular[rows, columns]


def unpack(packed: Tensor, dim: int) -> Tensor:
    """The lower triangular matrix [D, D] of what `pack` made."""
    rows, columns = torch.tril_indices(dim, dim)
    return packed.new_zeros(dim, dim).index_put((rows, columns), packed)


_NO_LAST_LAYER = (
    "a quadratic head has no last layer to train: take a linear or MLP head for "
    "whatever works on one, as calibration does"
)
