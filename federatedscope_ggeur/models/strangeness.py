"""A score of how unlike all classes a row is: the relative Mahalanobis distance."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from safetensors.torch import save
from torch import Tensor

from .own import OF_HEAD

_NAMES = ("centre", "matrix", "weight", "offset")


class Strangeness:
    """Scores how unlike all classes a row is, by the relative Mahalanobis distance.

    The score is ``min_c (x - mu_c)' A^-1 (x - mu_c) - (x - m)' B^-1 (x - m)``. It is
    large for rows of an unknown class. A is LDA's common covariance within classes. B
    is the covariance of all rows with the same shrinkage. m is the mean of all rows.

    Parameters
    ----------
    centre : Tensor of shape (D,)
        m.
    matrix : Tensor of shape (D, D)
        ``A^-1 - B^-1``.
    weight : Tensor of shape (C', D)
        ``A^-1 (mu_c - m)`` for each class with rows.
    offset : Tensor of shape (C',)
        ``(mu_c - m)' A^-1 (mu_c - m)``.

    References
    ----------
    Ren et al., "A simple fix to Mahalanobis distance for improving near-OOD detection",
    2021.
    """

    def __init__(self, centre: Tensor, matrix: Tensor, weight: Tensor, offset: Tensor):
        self.centre, self.matrix = centre, matrix
        self.weight, self.offset = weight, offset

    @classmethod
    def of(
        cls,
        centre: Tensor,
        offsets: Tensor,
        within_root: Tensor,
        total_root: Tensor,
        by: Tensor | None = None,
    ) -> Strangeness:
        """Make the score from the mean of all rows and two covariances.

        `centre` [D] is m, and `offsets` [C', D] are ``mu_c - m``. `within_root` and
        `total_root` [D, D] are the lower Cholesky factors of A and B. If `by` [D] is
        given, all of them are of rows divided by `by`.
        """
        weight = torch.cholesky_solve(offsets.T, within_root).T
        offset = (weight * offsets).sum(dim=1)
        matrix = torch.cholesky_inverse(within_root) - torch.cholesky_inverse(
            total_root
        )
        if by is not None:
            matrix, weight = matrix / by / by[:, None], weight / by
            centre = centre * by
        return cls(centre, matrix, weight, offset)

    def scores(self, features: Tensor) -> Tensor:
        """The score of each row of `features` [n, D]: shape (n,), float64."""
        z = features.double() - self.centre
        classes = self.offset - 2 * z @ self.weight.T
        return ((z @ self.matrix) * z).sum(dim=1) + classes.amin(dim=1)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the score, by name."""
        return {name: getattr(self, name) for name in _NAMES}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor]) -> Strangeness:
        """Make the score from its tensors. A missing tensor raises `KeyError`."""
        return cls(*(tensors[name].double() for name in _NAMES))

    def to_bytes(self, of_head: str | None = None) -> bytes:
        """The score as safetensors bytes.

        `of_head` is the SHA-256 of the head to which the score belongs; it is stored,
        too.
        """
        tensors = {name: t.contiguous() for name, t in self.tensors().items()}
        return save(tensors, {OF_HEAD: of_head or ""})
