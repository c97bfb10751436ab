"""Whether domains and classes can be told apart by what clients have sent.

Rows left out of a client's own statistics are of its own domain. Where a class stands
mostly in one domain they say nothing of how that class looks in the others, and scores
by leave-one-out are too good.
"""

from __future__ import annotations

import torch

from federatedscope_ggeur.models.closed_forms.components import Components

#: The share from which on labels and domains count as confounded: the larger part.
LARGER_PART = 0.5
#: Domains differ if they do so by more than twice what chance alone would give.
BEYOND_CHANCE = 2.0


def confounded_share(components: Components) -> float:
    """The share of the variance between domains that goes with the class: 0 to 1.

    Zero where there is one domain, or where domains do not differ; 1 where some have
    no chain of common classes to the others.

    Parameters
    ----------
    components : Components
        Of clients.

    Notes
    -----
    Means mu_dc of class c in domain d are fitted by ``a_c + b_d``, weighted by their
    rows n_dc. b is what domains add whatever the class. Over all rows its variance is
    that between classes, of the means of b over the rows of each, and the rest within
    classes; the share of the first is returned. It is the part of the shifts that
    looks like a difference of classes, 0 where all domains have the same shares of
    classes. With ``L = diag(n_d) - sum_c n_.c n_.c' / n_c``::

        L b = r,  r_d = sum_c n_dc (mu_dc - mu_c)
        share = 1 - tr(b' L b) / tr(b' (diag(n_d) - n n' / N) b)

    Whether domains differ is asked as by an F test: tr(b' L b) for each degree of
    freedom beside the trace of the scatter within components for each of its.
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
    if not _differ(float(fitted), len(present) - 1, parts):
        return 0.0
    centred = effects - in_domain / in_domain.sum() @ effects
    whole = (in_domain[:, None] * centred.square()).sum()
    return float((1 - fitted / whole).clamp(min=0))


def _differ(fitted: float, degrees: int, parts: Components) -> bool:
    """Whether domains differ by more than rows within one do by chance."""
    free = parts.total - len(parts.counts)
    if parts.scatter is None or free < 1:
        return fitted > 0
    by_chance = float(parts.scatter.trace()) / free
    return fitted / degrees > BEYOND_CHANCE * by_chance
