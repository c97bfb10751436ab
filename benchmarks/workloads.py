"""Synthetic embeddings of the benchmarks, of the size and shape of real ones.

A row is ``offset + domain shift + class mean + class-by-domain shift + noise``, about
10 long: a common offset of norm 7.5, domain shifts of norm 2.5, class means of norm 2.6
in a subspace of 64 dimensions, class-by-domain shifts of norm 1.5, and noise of rank
256 with eigenvalues proportional to 1/m and trace 28, whose basis turns slightly from
class to class, with 0.02 of isotropic noise on top.
"""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.data.splitters import lds_matrix
from federatedscope_ggeur.rng import torch_generator

DIM = 512
OFFSET, DOMAIN_SHIFT, CLASS_MEAN, CLASS_BY_DOMAIN = 7.5, 2.5, 2.6, 1.5
CLASS_RANK, NOISE_RANK, NOISE_TRACE = 64, 256, 28.0
TURN, ISOTROPIC = 0.1, 0.02

# Images of Office-Home's four domains (Art, Clipart, Product, Real World).
OFFICE_HOME = (2427, 4365, 4439, 4357)
S1_CLASSES, S1_ROWS, S1_PAIRS = 65, 2579, 107


def s1(seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Office-Home-LDS: features [n, 512] and labels [n] of each of 4 clients."""
    return embeddings(s1_counts(seed), DIM, seed)


def s1_counts(seed: int = 0) -> Tensor:
    """Rows of each (client, class): 2,579 over 107 of the 260 pairs, every class held.

    The pairs are those with the largest shares of an LDS matrix (alpha 0.1).
    """
    shares = torch.from_numpy(lds_matrix(len(OFFICE_HOME), S1_CLASSES, 0.1, seed))
    rank = shares + (shares == shares.max(dim=0).values)  # no class is left out
    present = torch.zeros(shares.numel(), dtype=torch.bool)
    present[rank.flatten().topk(S1_PAIRS).indices] = True
    wanted = shares * torch.tensor(OFFICE_HOME)[:, None] * present.view_as(shares)
    # One row for each pair, the others in proportion, the largest remainders up.
    wanted *= (S1_ROWS - S1_PAIRS) / wanted.sum()
    counts = wanted.floor()
    missing = S1_ROWS - S1_PAIRS - int(counts.sum())
    counts.view(-1)[(wanted - counts).flatten().topk(missing).indices] += 1
    return (counts + present.view_as(shares)).long()


def embeddings(counts: Tensor, dim: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Rows of each domain, class by class, from `counts` of shape (domains, C)."""
    generator = torch_generator(seed, "benchmarks", "embeddings")

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def of_norm(norm: float, *shape: int) -> Tensor:
        return norm * torch.nn.functional.normalize(normal(*shape), dim=-1)

    domains, classes = counts.shape
    subspace = torch.linalg.qr(normal(dim, CLASS_RANK)).Q.T
    means = of_norm(OFFSET, dim) + of_norm(DOMAIN_SHIFT, domains, 1, dim)
    means = means + of_norm(CLASS_MEAN, classes, CLASS_RANK) @ subspace
    means = means + of_norm(CLASS_BY_DOMAIN, domains, classes, dim)
    common = torch.linalg.qr(normal(dim, NOISE_RANK)).Q
    lengths = eigenvalues(NOISE_RANK).sqrt()

    parts: list[list[Tensor]] = [[] for _ in range(domains)]
    for c in range(classes):
        turned = common + TURN * normal(dim, NOISE_RANK) / dim**0.5
        basis = lengths[:, None] * torch.linalg.qr(turned).Q.T
        for d in range(domains):
            n = int(counts[d, c])
            noise = normal(n, NOISE_RANK) @ basis + ISOTROPIC * normal(n, dim)
            parts[d].append(means[d, c] + noise)
    labels = torch.arange(classes)
    return [
        (torch.cat(part), labels.repeat_interleave(counts[d]))
        for d, part in enumerate(parts)
    ]


def eigenvalues(rank: int) -> Tensor:
    """Proportional to 1/m, with sum 28."""
    values = 1 / torch.arange(1.0, rank + 1)
    return NOISE_TRACE * values / values.sum()
