"""The heads in closed form, written plainly in numpy: what the fast code must equal.

From rows and labels, all in one place, straight from the formulas and in float64.
Nothing here imports the package.
"""

import numpy as np


def seen(labels):
    return sorted(set(np.asarray(labels).tolist()))


def class_scatter(rows, labels, c):
    members = rows[labels == c]
    centred = members - members[0]  # so that copies of one row have no scatter
    centred = centred - centred.mean(axis=0)
    return centred.T @ centred


def common_covariance(rows, labels, rho):
    """The pooled covariance, shrunk by `rho`."""
    dim, degrees = rows.shape[1], len(rows) - len(seen(labels))
    within = sum(class_scatter(rows, labels, c) for c in seen(labels))
    if not within.any():
        return np.eye(dim)
    covariance = within / degrees
    sphere = np.trace(covariance) / dim * np.eye(dim)
    return (1 - rho) * covariance + rho * sphere


def log_prior(labels, c, priors):
    return np.log(np.mean(labels == c)) if priors else 0.0


def ncm(rows, labels):
    """``(weights [C', D], biases [C'])`` of the classes seen: the nearest mean."""
    means = np.array([rows[labels == c].mean(axis=0) for c in seen(labels)])
    return means, np.array([-mean @ mean / 2 for mean in means])


def lda(rows, labels, rho, priors=True):
    covariance = common_covariance(rows, labels, rho)
    weights, biases = [], []
    for c in seen(labels):
        mean = rows[labels == c].mean(axis=0)
        weight = np.linalg.solve(covariance, mean)
        weights.append(weight)
        biases.append(-mean @ weight / 2 + log_prior(labels, c, priors))
    return np.array(weights), np.array(biases)


def relative_ridge(rows, labels, strength):
    """Least squares of the centred indicators on centred rows; the intercept is free.

    The penalty is `strength` times the mean eigenvalue of the centred Gram matrix.
    """
    mean, dim = rows.mean(axis=0), rows.shape[1]
    one_hot = np.array([labels == c for c in seen(labels)], dtype=float).T
    size = ((rows - mean) ** 2).sum() / dim
    if size == 0:
        return np.zeros((one_hot.shape[1], dim)), one_hot.mean(axis=0)
    system = np.vstack([rows - mean, np.sqrt(strength * size) * np.eye(dim)])
    targets = np.vstack(
        [one_hot - one_hot.mean(axis=0), np.zeros((dim, one_hot.shape[1]))]
    )
    weights = np.linalg.lstsq(system, targets, rcond=None)[0].T
    return weights, one_hot.mean(axis=0) - weights @ mean


def centred(values):
    """Less the mean over classes, the first axis: what no probability depends on."""
    return values - values.mean(axis=0)


def softmax(scores):
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def make_data(rng, n, dim, num_classes, offset=0.0, missing=()):
    """Gaussian classes with a skewed covariance, `offset` from the origin."""
    mixing = rng.normal(size=(dim, dim)) / dim**0.5 + np.eye(dim)
    labels = rng.integers(num_classes, size=n)
    kept = [c for c in range(num_classes) if c not in missing]
    labels = np.array(kept)[labels % len(kept)]
    centres = rng.normal(size=(num_classes, dim))
    rows = centres[labels] + rng.normal(size=(n, dim)) @ mixing + offset
    return rows, labels


def assert_close(found, wanted, tolerance=1e-6):
    """Within `tolerance` of the largest entry."""
    assert np.abs(found - wanted).max() <= tolerance * max(np.abs(wanted).max(), 1e-9)
