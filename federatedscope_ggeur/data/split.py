"""Split rows: into training, validation and test parts, or evenly."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import numpy as np

from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.rng import derive_seed, numpy_generator

from .embeddings import Domain, Embeddings


def check_splits(splits: Sequence[float]) -> None:
    """Raise a `ConfigError` about ``data.splits`` unless it is a possible split."""
    if (
        not isinstance(splits, (list, tuple))
        or len(splits) != 3
        or not all(isinstance(part, Real) and 0 <= part <= 1 for part in splits)
    ):
        problem = "must be three numbers between 0 and 1: [train, val, test]"
    elif splits[0] == 0 or splits[2] == 0:
        problem = "must give both train (first) and test (last) more than 0"
    elif sum(splits) > 1 + 1e-9:
        problem = "must add up to at most 1"
    else:
        return
    raise ConfigError(f"data.splits {problem}; got {splits}. Try [0.7, 0.0, 0.3].")


def validation_share(splits: Sequence[float]) -> float:
    """The share of validation rows among all rows that are not test rows.

    A data set may have its own test split. The first two numbers of ``data.splits``
    then divide the other rows.
    """
    return splits[1] / (splits[0] + splits[1])


def _spread(counts: np.ndarray, total: int) -> np.ndarray:
    """Integers proportional to `counts` whose sum is `total` <= sum(counts).

    Cumulative sums are rounded (half up). So each integer is within one of its exact
    share, and never above its count.
    """
    everything = int(counts.sum())
    if everything == 0:
        return counts
    ends = (2 * np.cumsum(counts) * total + everything) // (2 * everything)
    return np.diff(ends, prepend=0)


def stratified_split(
    labels: np.ndarray, train: float, test: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Split rows at random, class by class, into disjoint train and test parts.

    Parameters
    ----------
    labels : int array of shape [n]
    train, test : float
        Fractions of n. The train part has exactly ``round(train * n)`` rows. Both parts
        together have ``round((train + test) * n)`` rows. Each class is in proportion.
    rng : numpy.random.Generator

    Returns
    -------
    (train_rows, test_rows) : int arrays
        The row numbers of both parts, ascending.
    """
    order = rng.permutation(len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    train_total = round(train * len(labels))
    both_total = round(min(train + test, 1.0) * len(labels))
    takes = _spread(counts, train_total)
    tests = _spread(counts - takes, both_total - train_total)
    parts: tuple[list, list] = ([order[:0]], [order[:0]])
    for c, take, rest in zip(classes, takes, tests):
        rows = order[labels[order] == c]
        parts[0].append(rows[:take])
        parts[1].append(rows[take : take + rest])
    return np.sort(np.concatenate(parts[0])), np.sort(np.concatenate(parts[1]))


def split_domain(rows: Embeddings, splits: Sequence[float], seed: int) -> Domain:
    """Split one domain's rows by `splits`, at random.

    The draw depends only on the seed and the domain's name. Validation rows stay among
    the training rows. Each client takes out its own (see `hold_out`), so that every
    client has some.

    Raises
    ------
    ConfigError
        `splits` is not [train, val, test].
    DataError
        The domain is so small that one part would be empty.
    """
    check_splits(splits)
    rng = numpy_generator(seed, "split", rows.domain)
    kept = splits[0] + splits[1]
    train, test = stratified_split(rows.labels.numpy(), kept, splits[2], rng)
    return _divided(rows, train, test, splits)


def split_by_row(domain: Domain, splits: Sequence[float], seed: int) -> Domain:
    """Split the rows of a domain, each by a hash of itself.

    Differential privacy needs this: one row more or less moves no other row. Equal rows
    are in the same part, and classes are in proportion only on the mean.

    Raises
    ------
    DataError
        The domain is so small that one part is empty.
    """
    rows = Embeddings.concatenate([domain.train, domain.test], domain.name)
    purpose = f"split {derive_seed(seed, domain.name)}"
    places = np.array([number / 2**64 for number in rows.hashes(purpose, 8)])
    ends = splits[0] + splits[1], sum(splits)
    train = np.nonzero(places < ends[0])[0]
    test = np.nonzero((places >= ends[0]) & (places < ends[1]))[0]
    return _divided(rows, train, test, splits)


def _divided(
    rows: Embeddings, train: np.ndarray, test: np.ndarray, splits: Sequence[float]
) -> Domain:
    if len(train) == 0 or len(test) == 0:
        raise DataError(
            f"domain '{rows.domain}' has {len(rows)} row(s), which data.splits "
            f"{list(splits)} divides into {len(train)} for training and {len(test)} "
            "for testing; both need at least one. Add rows or change data.splits."
        )
    kept, tested = rows.select(train), rows.select(test)
    return Domain(rows.domain, kept, tested, is_drawn=True)


def hold_out(
    labels: np.ndarray, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Split training rows at random, class by class, into training and validation
    parts.

    Parameters
    ----------
    labels : int array of shape [n]
    share : float
        The fraction of n for validation: ``round(share * n)`` rows, each class in
        proportion. The last row of a class is never taken, because training needs it
        more.
    rng : numpy.random.Generator

    Returns
    -------
    (train_rows, validation_rows) : int arrays
        The row numbers of both parts, ascending.
    """
    classes, counts = np.unique(labels, return_counts=True)
    total = min(round(share * len(labels)), int((counts - 1).sum()))
    order = rng.permutation(len(labels))
    held = [order[:0]]
    for c, take in zip(classes, _spread(counts - 1, total)):
        held.append(order[labels[order] == c][:take])
    validation = np.sort(np.concatenate(held))
    return np.setdiff1d(order, validation), validation


def deal_evenly(
    labels: np.ndarray, parts: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Divide all rows at random into `parts` parts with equal shares of each class.

    Returns `parts` disjoint ascending arrays of row numbers. Their sizes differ by at
    most one, overall and within every class.
    """
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return [np.sort(order[part::parts]) for part in range(parts)]
