"""Shrink covariances of small samples, so that they can be inverted."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError

#: Relative differences smaller than this count as rounding.
_GAIN = 1e-6
#: Multiples of the mean eigenvalue that generalised cross-validation tries: six for
#: each power of ten, the most regular first.
GCV_STRENGTHS = tuple(10 ** (-step / 6) for step in range(-12, 43))


def common_covariance(
    within: Tensor, samples: float, classes: int, shrinkage: float, form: str = "lda"
) -> tuple[Tensor, Tensor, dict]:
    """LDA's shrunk covariance ``(1 - rho) S0 + rho (tr S0 / D) I``, ``S0 = W / (N -
    C)``.

    Parameters
    ----------
    within : Tensor of shape (D, D), float64
        The within-class scatter W.
    samples : float
        N, the number of samples, or the sum of their weights.
    classes : int
        C, counting only classes with samples.
    shrinkage : float
        rho.
    form : str
        The name of the closed form whose shrinkage it is, for the error.

    Returns
    -------
    tuple of Tensor of shape (D, D), Tensor of shape (D, D), and dict
        The covariance, its lower Cholesky factor, and a report with "shrinkage" and
        "shrinkage_rule".

    Raises
    ------
    StatisticsError
        The covariance is singular. Without shrinkage this holds for fewer than D + C
        samples.
    """
    degrees, dim = samples - classes, len(within)
    covariance = within / degrees if degrees > 0 else torch.zeros_like(within)
    size = float(covariance.trace()) / dim
    rule = "set"
    if size <= 0 and shrinkage != 0:
        size, shrinkage = 1.0, 1.0
        rule = "fallback: no scatter within classes, the identity in its place"
    identity = torch.eye(dim, dtype=torch.float64)
    covariance = (1 - shrinkage) * covariance + shrinkage * size * identity
    regular = shrinkage > 0 or degrees >= dim
    root = stable_cholesky(covariance) if regular else None
    if root is None:
        raise StatisticsError(
            f"the common covariance of {samples:.10g} samples of {classes} classes in "
            f"{dim} dimensions is singular with a shrinkage of {shrinkage}; raise "
            f"ggeur.{form}.shrinkage, or set it to -1 to have it chosen"
        )
    return covariance, root, {"shrinkage": float(shrinkage), "shrinkage_rule": rule}


def ridge_by_gcv(within: Tensor, counts: Tensor, offsets: Tensor, rows: int) -> float:
    """Choose the lambda of ridge regression by generalised cross-validation.

    Merged statistics suffice. The chosen lambda minimises ``N RSS / (N - df)^2``. With
    T the scatter of all rows, B the sums of centred rows by class, and M = T + lambda
    I::

        df = 1 + tr(T M^-1)
        RSS = sum_c n_c (1 - n_c / N) - tr(B' M^-1 (M + lambda I) M^-1 B)

    Parameters
    ----------
    within : Tensor of shape (D, D), float64
        The within-class scatter.
    counts : Tensor of shape (C',), float64
        The rows of each class, or the sums of their weights.
    offsets : Tensor of shape (C', D), float64
        Class means minus the mean of all rows.
    rows : int
        The number of all rows.

    Returns
    -------
    float
        lambda; 0 if there is no scatter.

    References
    ----------
    Golub, Heath, Wahba, "Generalized cross-validation as a method for choosing a good
    ridge parameter", 1979.
    """
    total = float(counts.sum())
    sums = offsets * counts[:, None]
    values, basis = torch.linalg.eigh(within + sums.T @ offsets)
    values = values.clamp(min=0)
    size = float(values.mean())
    if size <= 0:
        return 0.0
    squares = (sums @ basis).square().sum(dim=0)
    there = values > len(values) * torch.finfo(values.dtype).eps * values.max()
    # Centred rows span no more directions. Sums in fixed point have rounding in others.
    there[: max(len(values) - max(rows - 1, 1), 0)] = False
    values, squares = values[there], squares[there]
    # The residual without lambda. Lambda's part may be tiny, so it is summed apart.
    of_labels = float((counts * (1 - counts / total)).sum())
    unexplained = max(of_labels - float((squares / values).sum()), 0.0)
    if unexplained < _GAIN * of_labels:
        unexplained = 0.0
    spare = max(total - 1 - len(values), 0.0)
    best, chosen = math.inf, GCV_STRENGTHS[0]
    for strength in GCV_STRENGTHS:
        left = strength * size / (values + strength * size)
        residual = unexplained + float((squares / values * left.square()).sum())
        score = residual / (spare + float(left.sum())) ** 2
        # Rounding must not decide: every partition must give the same head.
        if score < (1 - _GAIN) * best:
            best, chosen = score, strength
    return chosen * size


def stable_cholesky(matrix: Tensor) -> Tensor | None:
    """The lower Cholesky factor of a matrix [D, D]; None if it is singular up to
    rounding.

    A squared pivot is the part of a variance that earlier variables do not explain. If
    it is zero up to rounding, it may pass Cholesky's own test by chance.
    """
    root, failed = torch.linalg.cholesky_ex(matrix)
    least = len(matrix) * torch.finfo(matrix.dtype).eps * matrix.diagonal()
    if failed or (root.diagonal().square() <= least).any():
        return None
    return root
