"""The definition of a splitter, which divides a domain's rows among its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from federatedscope_ggeur.errors import ConfigError, PluginError, did_you_mean
from federatedscope_ggeur.rng import numpy_generator
from federatedscope_ggeur.settings import Key, Registry, kind_of, where_of, whole

from ..embeddings import Domain
from ..parts import filled_in, registered
from ..split import deal_evenly

#: The sum of shares may be wrong by this much.
ROUNDING = 1e-9


class Task(NamedTuple):
    """The argument of a splitter: one domain to divide among its clients.

    Attributes
    ----------
    rows : Domain
    members : range
        The numbers of the domain's m clients, from 1.
    client_num : int
        K, the number of clients of all domains.
    num_classes : int
        C, the number of classes.
    seed : int
        The seed of the run, see `generator`.
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
        """The classes [n] of the domain's training rows."""
        return self.rows.train.labels.numpy()

    def generator(self, purpose: str) -> np.random.Generator:
        """A generator that depends only on the seed, the domain and the purpose."""
        return numpy_generator(self.seed, "partition", self.domain, purpose)


class Shares(NamedTuple):
    """The share of a domain's rows that each of its m clients gets.

    Attributes
    ----------
    of_rows : float array of shape [m], or [m, C] for each class by itself
        Shares of the rows that are left after `min_per_class`. Each is 0 or more, and
        their sum is at most 1. If the sum is less, no client gets the rest.
    min_per_class : int
        The number of rows of each class that every client gets first. They are dealt
        one by one, in turn. If a class has too few rows, the first clients get one
        more.
    """

    of_rows: np.ndarray
    min_per_class: int = 0


class Holders(NamedTuple):
    """The client that gets each row of a domain.

    Attributes
    ----------
    of_train : int array of shape [n]
        The client of each training row, as its position among the members, 0..m-1. -1
        means that no client gets the row.
    of_test : int array of shape [n_test] or None
        The client of each test row. Rows of -1 are divided evenly among all clients, so
        that the test set stays whole. None means -1 for all rows.
    """

    of_train: np.ndarray
    of_test: np.ndarray | None = None


Given = "np.ndarray | Shares | Holders"
Splitter = Callable[..., Given]
SPLITTERS: Registry[Splitter] = Registry("splitter", "data.splitter")


def register_splitter(
    name: str, settings: Sequence[Key] = ()
) -> Callable[[Splitter], Splitter]:
    """Decorator: register a function as ``data.splitter: <name>``.

    The package calls ``splitter(task, **arguments)`` for each domain, with a `Task` and
    the arguments in ``data.splitter_args``. The result is `Shares`, `Holders`, or an
    array ``of_rows`` in place of ``Shares(of_rows)``.

    Parameters
    ----------
    name : str
    settings : sequence of Key
        The arguments of ``data.splitter_args``. An argument whose default is None must
        be given.
    """
    return registered(
        SPLITTERS, name, settings, ("task",), SECTION="data.splitter_args"
    )


def divide(name: str, args, task: Task) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Divide a domain's rows among its clients, by the splitter called `name`.

    Returns
    -------
    (train_rows, test_rows) : lists of m int arrays
        The row numbers of each client, ascending. No row occurs twice, and every test
        row occurs once.

    Raises
    ------
    ConfigError
        The errors of `read_arguments`. Or the splitter refuses, or returns unusable
        shares.
    PluginError
        The splitter returns something else.
    """
    splitter = SPLITTERS.find(name)
    given = splitter(task, **read_arguments(name, args))
    if not isinstance(given, (np.ndarray, Shares, Holders)):
        raise PluginError(
            f"the splitter '{name}'{where_of(splitter)} must return an array of "
            f"shares, Shares or Holders, but returned {kind_of(given)}"
        )
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
            f"data.splitter: '{name}' must return shares of shape ({m},) or "
            f"({m}, {num_classes}), 0 or more with a sum of at most 1, got {of_rows}"
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
            f"data.splitter: '{name}' must return whole numbers from -1 to {m - 1}, "
            f"one for each of the {rows} rows of '{task.domain}', got {holders}"
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
    """Deal the first rows of each class, at most `most`, to `m` clients in turn.

    Returns the rows that are left, in `order`, and the rows of each client.
    """
    firsts = [order[labels[order] == c][:most] for c in np.unique(labels)]
    hands = [np.concatenate([order[:0], *(f[k::m] for f in firsts)]) for k in range(m)]
    return order[~np.isin(order, np.concatenate([order[:0], *hands]))], hands


def _cut(rows: np.ndarray, shares: np.ndarray) -> list[np.ndarray]:
    """Cut `rows` into consecutive pieces. Cumulative rounding keeps their total."""
    ends = np.floor(np.cumsum(shares) * len(rows) + 0.5).astype(int)
    return np.split(rows, ends)[:-1]


def read_arguments(name: str, args) -> dict[str, object]:
    """Read a splitter's arguments. As in FS, `args` is a list with at most one dict.

    Raises
    ------
    ConfigError
        The splitter is unknown, `args` has another form, or a name or a value is wrong.
    """
    if not name:
        raise ConfigError(
            "data.splitter is not set; name the one that divides each domain among "
            f"its clients ({', '.join(SPLITTERS)}), or leave out federate.client_num: "
            "then every domain is one client"
        )
    splitter = SPLITTERS.find(name)
    keys = {key.name: key for key in splitter.SETTINGS}
    fits = isinstance(args, (list, tuple)) and len(args) <= 1
    fits = fits and all(isinstance(part, Mapping) for part in args)
    given = dict(*args) if fits else {}
    problems = [] if fits else ["must be a list of at most one mapping"]
    problems += [
        f"there is no argument {n}{did_you_mean(n, keys)}"
        for n in given
        if n not in keys
    ]
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
