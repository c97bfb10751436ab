"""What a splitter is, and how one divides a domain's rows among its clients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import NamedTuple

import numpy as np

from federatedscope_ggeur.data.embeddings import Domain
from federatedscope_ggeur.data.parts import filled_in, registered
from federatedscope_ggeur.data.split import deal_evenly
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.rng import numpy_generator
from federatedscope_ggeur.settings import Key, Registry, Rule, whole

#: By so much shares may miss what they should add up to.
ROUNDING = 1e-9


class Task(NamedTuple):
    """One domain to divide among its clients: what a splitter is called with.

    Attributes
    ----------
    rows : Domain
    members : range
        The numbers of its m clients, from 1.
    client_num : int
        K, the clients of all domains.
    num_classes : int
        C.
    seed : int
        See `generator`.
    """

    rows: Domain
    members: range
    client_num: int
    num_classes: int
    seed: int

    @property
    def domain(self) -> str:
        """The domain's name."""
        return self.rows.name

    @property
    def labels(self) -> np.ndarray:
        """The classes [n] of the rows to train on."""
        return self.rows.train.labels.numpy()

    def generator(self, purpose: str) -> np.random.Generator:
        """Draws that depend on the seed, the domain and the purpose alone."""
        return numpy_generator(self.seed, "partition", self.domain, purpose)


class Shares(NamedTuple):
    """What each of a domain's m clients gets of its rows.

    Attributes
    ----------
    of_rows : float array of shape [m], or [m, C] for each class by itself
        Of the rows that are left once `min_per_class` are dealt: 0 or more, at most 1
        in all. What is left over no client gets.
    min_per_class : int
        Rows of each class that every client is dealt beforehand, one in turn like
        cards; of a class that has too few the first clients get one more, or one at
        all.
    """

    of_rows: np.ndarray
    min_per_class: int = 0


class Holders(NamedTuple):
    """Which of a domain's m clients gets each row.

    Attributes
    ----------
    of_train : int array of shape [n]
        For each row to train on the client's position among the members, 0..m-1, or -1:
        no client gets it.
    of_test : int array of shape [n_test] or None
        For each row to test on likewise, but those of -1 are dealt evenly, and so are
        all with None: the test set stays whole.
    """

    of_train: np.ndarray
    of_test: np.ndarray | None = None


Given = "np.ndarray | Shares | Holders"
Splitter = Callable[..., Given]
SPLITTERS: Registry[Splitter] = Registry("splitter", "data.splitter")


def register_splitter(
    name: str, settings: Sequence[Key] = ()
) -> Callable[[Splitter], Splitter]:
    """Decorator: the function is ``data.splitter: <name>``.

    It is called as ``splitter(task, **arguments)`` for each domain, with a `Task` and
    what ``data.splitter_args`` holds, and returns the `Shares` of the domain's rows
    that the clients get, or only their `of_rows`; or the `Holders` of each row.

    Parameters
    ----------
    name : str
    settings : sequence of Key
        The arguments of ``data.splitter_args``; one with the default None must be
        given.
    """
    return registered(
        SPLITTERS, name, settings, ("task",), SECTION="data.splitter_args"
    )


def above_zero(largest: float = math.inf) -> Rule:
    """The rule that a value is a number above 0, at most `largest`."""
    limit = " and at most 1" if largest == 1 else ""

    def rule(value) -> str:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if is_number and 0 < value <= largest and math.isfinite(value):
            return ""
        return f"must be a number above 0{limit}, got {value!r}"

    rule.read = float
    return rule


def divide(name: str, args, task: Task) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the splitter called `name` gives each member of the domain's rows.

    Returns
    -------
    (train_rows, test_rows) : lists of m int arrays
        Row numbers, ascending; no row twice. The test rows are complete.

    Raises
    ------
    ConfigError
        As `read_arguments`; what the splitter refuses, or gives that does not fit.
    """
    given = SPLITTERS.find(name)(task, **read_arguments(name, args))
    if not isinstance(given, Holders):
        shares = given if isinstance(given, Shares) else Shares(given)
        _check_shares(name, shares, task)
        return _by_shares(task.labels, shares, task), _tests(None, task)
    _check_holders(name, given.of_train, len(task.rows.train), task)
    if given.of_test is not None:
        _check_holders(name, given.of_test, len(task.rows.test), task)
    return _of_each(given.of_train, task), _tests(given.of_test, task)


def _check_shares(name: str, shares: Shares, task: Task) -> None:
    of_rows, m, num_classes = shares.of_rows, len(task.members), task.num_classes
    if of_rows.shape not in ((m,), (m, num_classes)) or not (
        (of_rows >= 0).all() and (of_rows.sum(axis=0) <= 1 + ROUNDING).all()
    ):
        raise ConfigError(
            f"data.splitter: '{name}' must give shares of shape ({m},) or "
            f"({m}, {num_classes}), 0 or more and at most 1 in all, got {of_rows}"
        )
    if whole(0)(shares.min_per_class):
        raise ConfigError(
            f"data.splitter: min_per_class of '{name}' {whole(0)(shares.min_per_class)}"
        )


def _check_holders(name: str, holders: np.ndarray, rows: int, task: Task) -> None:
    m = len(task.members)
    if (
        holders.shape != (rows,)
        or holders.dtype.kind not in "iu"
        or ((holders < -1) | (holders >= m)).any()
    ):
        raise ConfigError(
            f"data.splitter: '{name}' must give whole numbers from -1 to {m - 1}, one "
            f"for each of the {rows} rows of '{task.domain}', got {holders}"
        )


def _of_each(holders: np.ndarray, task: Task) -> list[np.ndarray]:
    order = np.argsort(holders, kind="stable")
    ends = np.searchsorted(holders[order], np.arange(len(task.members) + 1))
    return [order[a:b] for a, b in zip(ends, ends[1:])]


def _tests(holders: np.ndarray | None, task: Task) -> list[np.ndarray]:
    labels = task.rows.test.labels.numpy()
    if holders is None:
        holders = np.full(len(labels), -1)
    free = np.flatnonzero(holders == -1)
    dealt = deal_evenly(labels[free], len(task.members), task.generator("test"))
    pairs = zip(_of_each(holders, task), dealt)
    return [np.sort(np.concatenate([held, free[part]])) for held, part in pairs]


def _by_shares(labels: np.ndarray, shares: Shares, task: Task) -> list[np.ndarray]:
    order = task.generator("train").permutation(len(labels))
    m = len(task.members)
    order, hands = _deal(order, labels, m * shares.min_per_class, m)
    if shares.of_rows.ndim == 1:
        pieces = _cut(order, shares.of_rows)
    else:
        by_class = [
            _cut(order[labels[order] == c], column)
            for c, column in enumerate(shares.of_rows.T)
        ]
        pieces = [np.concatenate(parts) for parts in zip(*by_class)]
    return [np.sort(np.concatenate(parts)) for parts in zip(pieces, hands)]


def _deal(
    order: np.ndarray, labels: np.ndarray, most: int, m: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Deal the first rows of each class, `most` at most, to `m` clients in turn.

    Returns the rows that are left, in `order`, and each client's.
    """
    firsts = [order[labels[order] == c][:most] for c in np.unique(labels)]
    hands = [np.concatenate([order[:0], *(f[k::m] for f in firsts)]) for k in range(m)]
    return order[~np.isin(order, np.concatenate([order[:0], *hands]))], hands


def _cut(rows: np.ndarray, shares: np.ndarray) -> list[np.ndarray]:
    """Consecutive pieces of `rows` by cumulative rounding, so that sizes add up."""
    ends = np.floor(np.cumsum(shares) * len(rows) + 0.5).astype(int)
    return np.split(rows, ends)[:-1]


def read_arguments(name: str, args) -> dict[str, object]:
    """The arguments in `args`, which has FS's form: a list with at most one dict.

    Raises
    ------
    ConfigError
        An unknown splitter, another form, an unknown or missing name, a value out of
        range.
    """
    splitter = SPLITTERS.find(name)
    keys = {key.name: key for key in splitter.SETTINGS}
    fits = isinstance(args, (list, tuple)) and len(args) <= 1
    fits = fits and all(isinstance(part, Mapping) for part in args)
    given = dict(*args) if fits else {}
    problems = [] if fits else ["it must be a list of at most one mapping"]
    problems += [f"there is no {n}" for n in given if n not in keys]
    for n, key in keys.items():
        missing = "must be given" if fits and key.default is None else ""
        problem = key.rule(given[n]) if n in given else missing
        problems += [f"{n} {problem}"] if problem else []
    if not problems:
        return filled_in(splitter, {n: keys[n].read(v) for n, v in given.items()})
    takes = ", ".join(f"'{n}': x" for n in keys)
    takes = f"[{{{takes}}}]" if keys else "no arguments"
    raise ConfigError(
        f"data.splitter_args: {args!r} does not fit data.splitter '{name}', which "
        f"takes {takes}: {'; '.join(problems)}"
    )
