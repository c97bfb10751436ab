"""Leave-one-out the plain way, in numpy: each head worked out again without the row.

Nothing here imports the package. A federation is `rows` [n, D], `labels`, `clients` and
`domains` [n], and `times` [n]: how often the statistics have the row. A head gives
scores [C]; a class without rows has -inf.
"""

import closed_form_oracle as plain
import numpy as np


def places(clients, domains, grain):
    return {"client": clients, "domain": domains, "class": 0 * clients}[grain]


def deviations(rows):
    """Of each dimension; 1 where it is constant."""
    found = rows.std(axis=0)
    found[found == 0] = 1
    return found


def components(labels, where):
    """The sorted pairs of class and place, and the index of each row's pair."""
    pairs = list(zip(labels.tolist(), where.tolist()))
    parts = sorted(set(pairs))
    return parts, np.array([parts.index(pair) for pair in pairs])


def mixture(rows, labels, where, x, num_classes, g, priors=True):
    """Of one row x; LDA where `where` is the same everywhere. g None: nearest means."""
    parts, part_of = components(labels, where)
    covariance = np.eye(len(x))
    if g is not None:
        covariance = plain.common_covariance(rows, part_of, g)
    scores = np.full(num_classes, -np.inf)
    for number, (c, _) in enumerate(parts):
        mine = rows[part_of == number]
        away = x - mine.mean(axis=0)
        share = len(mine) / (len(rows) if priors else (labels == c).sum())
        score = np.log(share) - away @ np.linalg.solve(covariance, away) / 2
        scores[c] = np.logaddexp(scores[c], score)
    return scores


def rda(rows, labels, where, x, num_classes, g, priors=True, common=9):
    """Each class has a covariance of its own, drawn to the common one. Where `where`
    differs, the scores of the mixture are added."""
    _, part_of = components(labels, 0 * where)
    apart = rows - np.array([rows[part_of == part].mean(axis=0) for part in part_of])
    share, scores = common / num_classes, np.full(num_classes, -np.inf)
    for c in plain.seen(labels):
        own, count = apart[labels == c], (labels == c).sum() + share * len(rows)
        covariance = (own.T @ own + share * apart.T @ apart) / count
        size = covariance.trace() / len(x)
        covariance = (1 - g) * covariance + g * size * np.eye(len(x))
        if size <= 1e-24:
            covariance = np.eye(len(x))
        away = x - rows[labels == c].mean(axis=0)
        held = (labels == c).mean() if priors else 1
        square = away @ np.linalg.solve(covariance, away)
        scores[c] = np.log(held) - (square + np.linalg.slogdet(covariance)[1]) / 2
    if where.any():
        scores = scores + mixture(rows, labels, where, x, num_classes, g, priors)
    return scores


def ridge(rows, labels, x, num_classes, strength):
    scores = np.full(num_classes, -np.inf)
    weights, biases = plain.relative_ridge(rows, labels, strength)
    scores[plain.seen(labels)] = weights @ x + biases
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
