"""Leave-one-out the plain way, in numpy: each head worked out again without the row.

Nothing here imports the package. A federation is `rows` [n, D], `labels`, `clients` and
`domains` [n], and `times` [n]: how often the statistics have the row. A head gives
scores [C]; a class without rows has -inf.
"""

from __future__ import annotations

import numpy as np


def places(clients, domains, grain):
    return {"client": clients, "domain": domains, "class": 0 * clients}[grain]


def deviations(rows):
    """Of each dimension; 1 where it is constant."""
    found = rows.std(axis=0)
    found[found == 0] = 1
    return found


def log_sum_exp(values):
    top = max(values)
    return top + np.log(sum(np.exp(np.array(values) - top)))


def mixture(rows, labels, where, x, num_classes, g, priors=True):
    """Of one row x; LDA where `where` is the same everywhere. g None: nearest means."""
    parts = sorted({(c, k) for c, k in zip(labels.tolist(), where.tolist())})
    dim, degrees = rows.shape[1], len(rows) - len(parts)
    means, counts, scatter = {}, {}, np.zeros((dim, dim))
    for part in parts:
        mine = rows[(labels == part[0]) & (where == part[1])]
        # Copies of one row have exactly that mean, and no scatter.
        means[part] = mine[0] + (mine - mine[0]).mean(axis=0)
        counts[part] = len(mine)
        scatter += (mine - means[part]).T @ (mine - means[part])
    covariance = np.eye(dim)
    if g is not None and degrees > 0 and np.trace(scatter) > 0:
        pooled = scatter / degrees
        covariance = (1 - g) * pooled + g * np.trace(pooled) / dim * np.eye(dim)
    scores = np.full(num_classes, -np.inf)
    for c in sorted(set(labels.tolist())):
        of_class = [part for part in parts if part[0] == c]
        total = len(rows) if priors else sum(counts[part] for part in of_class)
        scores[c] = log_sum_exp(
            [
                np.log(counts[part] / total)
                - (x - means[part]) @ np.linalg.solve(covariance, x - means[part]) / 2
                for part in of_class
            ]
        )
    return scores


def ridge(rows, labels, x, num_classes, strength):
    """Least squares with a penalty on the weights alone, as one augmented system."""
    dim, mean = rows.shape[1], rows.mean(axis=0)
    seen = sorted(set(labels.tolist()))
    one_hot = np.array([labels == c for c in seen], dtype=float).T
    centred = rows - mean
    size = (centred**2).sum() / dim
    scores = np.full(num_classes, -np.inf)
    scores[seen] = one_hot.mean(axis=0)
    if size > 0:
        penalty = np.sqrt(strength * size) * np.eye(dim)
        system = np.vstack([centred, penalty])
        targets = np.vstack(
            [one_hot - one_hot.mean(axis=0), np.zeros((dim, len(seen)))]
        )
        weights = np.linalg.lstsq(system, targets, rcond=None)[0]
        scores[seen] += (x - mean) @ weights
    return scores


def left_out(head, rows, labels, clients, domains, times):
    """Scores [n, C] of each row by `head(rows, labels, clients, domains, x)` of all
    rows of the statistics but itself; None where there are none."""
    found = []
    for i, x in enumerate(rows):
        others = np.where(np.arange(len(rows)) == i, 0, times)
        held = [
            part.repeat(others, axis=0) for part in (rows, labels, clients, domains)
        ]
        found.append(head(*held, x) if others.any() else None)
    return found
