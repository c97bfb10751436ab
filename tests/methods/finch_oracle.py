"""FINCH, plainly: connected parts by searching, means of the points themselves."""

import numpy as np


def parts(points):
    """Connected parts of "i and j are neighbours, or have the same", by searching."""
    n = len(points)
    if n == 1:
        return [[0]]
    u = points / np.linalg.norm(points, axis=1, keepdims=True).clip(1e-12)
    cosine = u @ u.T
    near = [
        max((j for j in range(n) if j != i), key=lambda j: cosine[i, j])
        for i in range(n)
    ]
    joined = [
        [i == j or near[i] == j or near[j] == i or near[i] == near[j] for j in range(n)]
        for i in range(n)
    ]
    left, found = set(range(n)), []
    while left:
        reached, new = set(), {min(left)}
        while new:
            reached |= new
            new = {j for i in new for j in range(n) if joined[i][j]} - reached
        found.append(sorted(reached))
        left -= reached
    return found


def finch_oracle(points):
    """The last partition that is not one cluster, of means of the points themselves."""
    found = parts(points)
    while True:
        means = np.stack([points[list(own)].mean(axis=0) for own in found])
        coarser = [sorted(i for k in own for i in found[k]) for own in parts(means)]
        if len(coarser) == 1 or len(coarser) == len(found):
            return found
        found = coarser
