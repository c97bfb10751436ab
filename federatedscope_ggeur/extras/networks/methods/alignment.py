"""A supervised contrastive loss, which brings representations of one class together."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

#: The weight of the loss among virtual rows, from the code of VHL and FedPG.
_AMONG_VIRTUAL = 0.1


def supervised_contrastive(z: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The supervised contrastive loss: low if rows are nearest to rows of their class.

    Parameters
    ----------
    z : Tensor of shape (N, D')
        The representations. They are scaled to length 1, so only directions count.
    labels : Tensor of shape (N,)
    temperature : float

    Returns
    -------
    Tensor of shape ()
        ``-(1/N) sum_i (1/max(1, |J_i|)) sum_{j in J_i} (s_ij - log sum_{a != i}
        e^{s_ia})`` with s_ij = u_i . u_j / temperature. J_i are the other rows of i's
        class. If there are none, row i adds 0.

    Notes
    -----
    This is Eq. 2 of Khosla et al. (2020). The sum over positives is outside the
    logarithm.
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
    """The loss, a scalar, that pulls rows z [n, D'] towards virtual rows of their
    class.

    It is ``SupCon([z; sg(z')], [y; y']) + 0.1 SupCon(z', y')`` for virtual rows z' [m,
    D']. sg stops the gradient, so that the first part moves only own rows. This is Eq.
    11 of FedPG as in its code, which follows VHL's code. The printed equation has own
    and other classes on the two sides of a fraction, and so has no lower bound.
    """
    rows = torch.cat([z, virtual_z.detach()])
    both = torch.cat([labels, virtual_labels])
    among = supervised_contrastive(virtual_z, virtual_labels, temperature)
    return supervised_contrastive(rows, both, temperature) + _AMONG_VIRTUAL * among
