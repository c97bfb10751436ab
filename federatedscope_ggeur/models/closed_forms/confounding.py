"""Whether domains and classes are confounded in the statistics of clients.

Leave-one-out scores a client's rows, which are of its own domain. If a class is mostly
in one domain, these rows do not show how the class looks in other domains. Then the
scores are too good.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .components import Components

#: Classes and domains count as confounded if the share is at least this.
LARGER_PART = 0.5
#: Domains or classes differ if their difference is this many times that of chance.
BEYOND_CHANCE = 2.0
#: Domains also differ if the chance of their shift along the classes is below this.
#: The smallest chance was 2e-5 when the rows of one real domain were divided among
#: domains at random 540 times.
RARE = 1e-6


def confounded_share(components: Components) -> float:
    """The share of the variance between domains that the classes explain: 0 to 1.

    It is 0 if there is one domain, or if domains do not differ. It is 1 if no chain of
    common classes links all domains.

    Parameters
    ----------
    components : Components
        The components of clients.

    Notes
    -----
    The sum ``a_c + b_d`` is fitted to the mean mu_dc of each class c in each domain d,
    weighted by its number of rows n_dc. b_d is the shift of domain d, which is the same
    for all classes. The variance of b over all rows has a part between classes and a
    part within classes. The share of the first part is returned: the part of the shifts
    that looks like a difference of classes. It is 0 if all domains have the same shares
    of classes. With ``L = diag(n_d) - sum_c n_.c n_.c' / n_c``::

        L b = r,  r_d = sum_c n_dc (mu_dc - mu_c)
        share = 1 - tr(b' L b) / tr(b' (diag(n_d) - n n' / N) b)

    Two F tests decide whether domains differ. They compare tr(b' L b) with the trace of
    the scatter within components, each divided by its degrees of freedom. The first
    test is in all dimensions. If most dimensions hold only noise, this test may miss a
    shift in a few. So the second test is in the directions of the class means, within
    the dimensions that tell classes apart. A shift that looks like a difference of
    classes lies there.
    """
    parts = components.merged("domain")
    present, place = parts.domains.unique(return_inverse=True)
    if len(present) < 2:
        return 0.0
    counts = torch.zeros(parts.num_classes, len(present), dtype=torch.float64)
    counts[parts.labels, place] = parts.weights
    of_class = parts.merged("class")
    class_means = torch.zeros(parts.num_classes, parts.dim, dtype=torch.float64)
    class_means[of_class.labels] = of_class.means
    apart = parts.weights[:, None] * (parts.means - class_means[parts.labels])
    shifts = apart.new_zeros(len(present), parts.dim).index_add(0, place, apart)
    in_domain, in_class = counts.sum(dim=0), counts.sum(dim=1)
    within = in_domain.diag() - counts.T @ (counts / in_class.clamp(min=1)[:, None])
    values, vectors = torch.linalg.eigh(within)
    told_apart = values > 1e-9 * in_domain.max()
    if int(told_apart.sum()) < len(present) - 1:
        return 1.0
    along = vectors[:, told_apart].T @ shifts
    fitted = (along.square() / values[told_apart, None]).sum()
    effects = vectors[:, told_apart] @ (along / values[told_apart, None])
    if not _differ(along / values[told_apart, None].sqrt(), parts, of_class):
        return 0.0
    centred = effects - in_domain / in_domain.sum() @ effects
    whole = (in_domain[:, None] * centred.square()).sum()
    return float((1 - fitted / whole).clamp(min=0))


def _differ(contrasts: Tensor, parts: Components, of_class: Components) -> bool:
    """Whether domains differ more than chance explains.

    Parameters
    ----------
    contrasts : Tensor of shape (d - 1, D)
        Independent differences between the d domains. By chance alone, each difference
        has the covariance of a row within a component.
    parts, of_class : Components
        `parts` has one component for each class and domain, `of_class` one for each
        class.
    """
    free = parts.total - len(parts.counts)
    if parts.scatter is None or free < 1:
        return bool(contrasts.square().sum() > 0)
    if _ratio(contrasts, parts.scatter / free) > BEYOND_CHANCE:
        return True
    axes = _class_axes(parts, of_class)
    return _chance(contrasts @ axes, axes.T @ parts.scatter @ axes / free, free) < RARE


def _class_axes(parts: Components, of_class: Components) -> Tensor:
    """The directions [D, q] in which class means lie, on standardised dimensions.

    Dimensions in which classes do not differ are left out. The test is valid in these
    directions, because the random errors of class means are independent of those of
    contrasts and scatter. In the directions of the largest shift it would not be valid.
    """
    sizes = parts.deviations()
    apart = of_class.weights.sqrt()[:, None] * (of_class.means - parts.origin) / sizes
    others = len(apart) - 1
    by_chance = parts.within().diagonal() / sizes**2 / (parts.total - len(parts.counts))
    told = apart.square().sum(dim=0) > BEYOND_CHANCE * others * by_chance
    axes = torch.linalg.svd(apart * told, full_matrices=False).Vh[:others]
    return (axes * told / sizes).T


def _ratio(contrasts: Tensor, covariance: Tensor) -> float:
    """The mean square of the contrasts, relative to its expected value by chance.

    Without confounding, it is 1 on average.
    """
    square = float(contrasts.square().sum()) / len(contrasts)
    by_chance = float(covariance.trace())
    return square / by_chance if by_chance > 0 else (float("inf") if square else 0.0)


def _chance(contrasts: Tensor, covariance: Tensor, free: float) -> float:
    """The probability that chance gives contrasts [d-1, q] so large (Dempster 1958).

    The square of a contrast is approximated by ``tr(S)/r`` times a chi-square of r
    degrees of freedom, with r = ``tr(S)^2 / tr(S^2)``. S is estimated from `free` rows,
    so ``tr(S^2)`` is too large by about ``tr(S)^2 / free``.
    """
    size = float(covariance.trace())
    if not size > 0:
        return 1.0
    square = float(covariance.square().sum()) - size**2 / free
    most = float(len(covariance))
    rank = min(size**2 / square, most) if square > 0 else most
    ratio = _ratio(contrasts, covariance)
    # Imported here, because only leave-one-out needs it.
    from scipy.special import fdtrc

    return float(fdtrc(len(contrasts) * rank, free * rank, ratio))
