"""Text in closed forms, in plain numpy from rows."""

from __future__ import annotations

import numpy as np

from federatedscope_ggeur.extras.text.classes import ClassTexts


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def class_texts(features, scale=10.0, prior=0.0, ensemble=0.0) -> ClassTexts:
    import torch

    rows = torch.from_numpy(unit(features)).float()
    return ClassTexts(rows, scale, "key", prior=prior, ensemble=ensemble)


def bridge(groups, rows, texts):
    """a: `groups` are (class, rows of it), `rows` all of them."""
    m, d = rows.mean(axis=0), texts - texts.mean(axis=0)
    above = sum(len(x) * (x.mean(axis=0) - m) @ d[c] for c, x in groups)
    below = sum(len(x) * d[c] @ d[c] for c, x in groups)
    return max(0.0, above / below) if below > 0 else 0.0


def scores(points, rows, labels, places, texts, kappa, g, priors="counts"):
    """Scores [n, C] of LDA (all `places` alike) or of the mixture, with the prior.

    -inf for a class that nothing is known of.
    """
    num_classes, dim = texts.shape
    d, m = texts - texts.mean(axis=0), rows.mean(axis=0)
    keys = sorted({(int(c), int(p)) for c, p in zip(labels, places)})
    groups = [(c, rows[(labels == c) & (places == p)]) for c, p in keys]
    a = bridge(groups, rows, texts)
    scatter = sum((x - x.mean(0)).T @ (x - x.mean(0)) for _, x in groups)
    degrees = len(rows) - len(groups)
    size = np.trace(scatter) / max(degrees, 1) / dim
    if degrees <= 0 or size <= 1e-12:
        covariance = np.eye(dim)
    else:
        covariance = (1 - g) * scatter / degrees + g * size * np.eye(dim)
    guess = m + a * d
    unseen = sorted(set(range(num_classes)) - set(labels.tolist())) if a > 0 else []
    groups += [(c, np.zeros((0, dim))) for c in unseen]
    classes = np.array([c for c, _ in groups])
    weights = np.array([len(x) + kappa for _, x in groups])
    means = [(x.sum(0) + kappa * guess[c]) / n for (c, x), n in zip(groups, weights)]
    logs = np.log(weights / weights.sum())
    if priors == "none":
        sums = np.array([weights[classes == c].sum() for c in classes])
        logs = np.log(weights / sums)
    found = np.full((len(points), num_classes), -np.inf)
    inverse = np.linalg.inv(covariance)
    for mean, log, c in zip(means, logs, classes):
        apart = points - mean
        own = log - np.einsum("nd,de,ne->n", apart, inverse, apart) / 2
        found[:, c] = np.logaddexp(found[:, c], own)
    return found
