"""Representations of one class near each other, by a supervised contrastive loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

#: What the virtual rows' loss among themselves counts for, in VHL's and FedPG's code.
_AMONG_VIRTUAL = 0.1


def supervised_contrastive(z: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """How far rows of one class lie from each other rather than from other rows.

    Parameters
    ----------
    z : Tensor of shape (N, D')
        Taken by direction: rows are brought to length 1.
    labels : Tensor of shape (N,)
    temperature : float

    Returns
    -------
    Tensor of shape ()
        ``-(1/N) sum_i (1/max(1, |J_i|)) sum_{j in J_i} (s_ij - log sum_{a != i}
        e^{s_ia})`` with s_ij = u_i . u_j / temperature and J_i the other rows of i's
        class; rows without any add 0.

    Notes
    -----
    Khosla et al. (2020), Eq. 2: the sum over positives outside of the logarithm.
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
    """Draws rows z [n, D'] to virtual rows [m, D'] of their class: a scalar.

    ``SupCon([z; sg(z')], [y; y']) + 0.1 SupCon(z', y')``, where sg lets no gradient
    through: the virtual rows are what the others move to. It is Eq. 11 of FedPG as its
    code has it, after VHL's: as printed there, with own and other classes on the two
    sides of a fraction, it has no lower bound.
    """
    rows = torch.cat([z, virtual_z.detach()])
    both = torch.cat([labels, virtual_labels])
    among = supervised_contrastive(virtual_z, virtual_labels, temperature)
    return supervised_contrastive(rows, both, temperature) + _AMONG_VIRTUAL * among
