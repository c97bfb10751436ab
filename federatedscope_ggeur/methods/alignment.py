"""Bring representations of one class together by a supervised contrastive loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

#: The weight of the virtual rows' loss among themselves, in VHL's and FedPG's code.
_AMONG_VIRTUAL = 0.1


def supervised_contrastive(z: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The supervised contrastive loss: low if rows are nearest to rows of their class.

    Parameters
    ----------
    z : Tensor of shape (N, D')
        Only directions count: rows are scaled to length 1.
    labels : Tensor of shape (N,)
    temperature : float

    Returns
    -------
    Tensor of shape ()
        ``-(1/N) sum_i (1/max(1, |J_i|)) sum_{j in J_i} (s_ij - log sum_{a != i}
        e^{s_ia})`` with s_ij = u_i . u_j / temperature and J_i the other rows of i's
        class. A row without others adds 0.

    Notes
    -----
    Khosla et al. (2020), Eq. 2: the sum over positives is outside the logarithm.
    """
    if len(z) < 2:
        return z.sum() * 0.0
    u = F.normalize(z, dim=1)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    s = (u @ u.T / temperature).masked_fill(itself, -torch.inf)
    positive = (labels[:, None] == labels) & ~itself
    log_share = (s - s.logsumexp(dim=1, keepdim=True)).masked_fill(~positive, 0.0)
    return -(log_share.sum(dim=1) / positive.sum(dim=1).clamp(min=1)).mean()


def alignment(
    z: Tensor,
    labels: Tensor,
    virtual_z: Tensor,
    virtual_labels: Tensor,
    temperature: float,
) -> Tensor:
    """The loss, a scalar, that draws rows z [n, D'] to virtual rows [m, D'] of their
    class.

    It is ``SupCon([z; sg(z')], [y; y']) + 0.1 SupCon(z', y')``. sg stops the gradient,
    so that the rows move to the virtual ones. This is Eq. 11 of FedPG as in its code,
    which follows VHL's. As printed, with own and other classes on the two sides of a
    fraction, it has no lower bound.
    """
    rows = torch.cat([z, virtual_z.detach()])
    both = torch.cat([labels, virtual_labels])
    among = supervised_contrastive(virtual_z, virtual_labels, temperature)
    return supervised_contrastive(rows, both, temperature) + _AMONG_VIRTUAL * among
