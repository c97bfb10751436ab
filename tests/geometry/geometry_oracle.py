"""The formulas of the paper, written plainly in numpy: what the fast code must equal.

Everything is a loop over samples, clients or directions, straight from the formulas.
Nothing here imports the package.
"""

from fractions import Fraction

import numpy as np


def class_moments(rows, labels, c, weights=None):
    """``(n, mu, Sigma)`` of class `c`; mu and Sigma are zero if it has no samples.

    A row of weight w counts as w rows.
    """
    dim = rows.shape[1]
    weights = [1] * len(rows) if weights is None else weights
    members = [(w, x) for w, x, label in zip(weights, rows, labels) if label == c]
    n = sum(w for w, _ in members)
    mean, covariance = np.zeros(dim), np.zeros((dim, dim))
    for w, x in members:
        mean += w * x / n
    for w, x in members:
        covariance += w * np.outer(x - mean, x - mean) / n
    return n, mean, covariance


def merge_at_random(parts, rng):
    """Any order and any grouping: join two at random until one is left."""
    parts = list(parts)
    while len(parts) > 1:
        b, a = (parts.pop(rng.integers(len(parts))) for _ in range(2))
        parts.append(a + b)
    return parts[0]


def merge(parts):
    """Eq. 4 on a list of ``(n_k, mu_k, Sigma_k)``, all clients at once."""
    total = sum(n for n, _, _ in parts)
    dim = len(parts[0][1])
    mean, covariance = np.zeros(dim), np.zeros((dim, dim))
    if total == 0:
        return 0, mean, covariance
    for n, mean_k, _ in parts:
        mean += n * mean_k / total
    for n, mean_k, covariance_k in parts:
        covariance += n * covariance_k / total
        covariance += n * np.outer(mean_k - mean, mean_k - mean) / total
    return total, mean, covariance


def exact_moments(rows):
    """``(mu, Sigma)`` of float64 rows in exact rational arithmetic, rounded once."""
    exact = np.array([[Fraction(float(x)) for x in row] for row in rows], dtype=object)
    n, total = len(exact), exact.sum(axis=0)
    covariance = exact.T.dot(exact) / n - np.outer(total, total) / n**2
    return (total / n).astype(float), covariance.astype(float)


def shape(covariance):
    """Eq. 2: eigenvalues, descending, and eigenvectors as columns."""
    values, vectors = np.linalg.eigh(covariance)
    order = sorted(range(len(values)), key=lambda i: -values[i])
    return values[order], vectors[:, order]


def similarity(vectors_a, vectors_b, top):
    """Eq. 3 on two matrices of eigenvectors in columns."""
    total = 0.0
    for i in range(min(top, vectors_a.shape[1], vectors_b.shape[1])):
        inner = sum(x * y for x, y in zip(vectors_a[:, i], vectors_b[:, i]))
        total += abs(inner)
    return total


def usage(rows, anchors):
    """How many of `rows` equal each of `anchors`; no row may be anything else."""
    counts = [0] * len(anchors)
    for row in rows:
        matches = [i for i, anchor in enumerate(anchors) if (row == anchor).all()]
        assert len(matches) == 1, f"{row} is not one of the anchors"
        counts[matches[0]] += 1
    return counts


def share_of_rows(rows, share):
    """Rows of a class that a round draws of so many: the nearest number, at least 1."""
    if rows == 0:
        return 0
    below = int(share * rows)
    nearest = min((below, below + 1), key=lambda n: (abs(share * rows - n), n % 2))
    return max(1, nearest)
