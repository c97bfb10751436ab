"""FINCH (Sarfraz et al., CVPR 2019): clusters without a given number or threshold.

FINCH joins every point to its nearest neighbour. The connected parts are the clusters.
It clusters their means in the same way, and so on.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def finch(points: Tensor) -> Tensor:
    """The coarsest clusters of points [n, D] by cosine: cluster numbers [n], int64.

    The result is the last partition with several clusters, or else the first partition.
    Numbers follow the clusters' first points. Of equally near neighbours the first one
    counts.
    """
    if not len(points):
        return torch.zeros(0, dtype=torch.int64)
    found = _neighbour_parts(points)
    while True:
        means = cluster_means(points, found)
        coarser = _neighbour_parts(means)[found]
        if _count(coarser) in (1, _count(found)):
            return found
        found = coarser


def cluster_means(points: Tensor, clusters: Tensor) -> Tensor:
    """The mean of each cluster's points [n, D]: shape (number of clusters, D)."""
    count = _count(clusters)
    sums = points.new_zeros(count, points.shape[1]).index_add(0, clusters, points)
    sizes = torch.bincount(clusters, minlength=count)
    return sums / sizes[:, None]


def _neighbour_parts(points: Tensor) -> Tensor:
    """Connected parts of the nearest-neighbour graph, numbered by their first point."""
    n = len(points)
    part = torch.arange(n)
    if n > 1:
        u = F.normalize(points, dim=1)
        nearest = (u @ u.T).fill_diagonal_(-torch.inf).argmax(dim=1)
        for i, j in enumerate(nearest.tolist()):
            part[part == part[j]] = part[i].clone()
    first = dict.fromkeys(part.tolist())
    number = {p: k for k, p in enumerate(first)}
    return torch.tensor([number[p] for p in part.tolist()])


def _count(clusters: Tensor) -> int:
    return int(clusters.max()) + 1
