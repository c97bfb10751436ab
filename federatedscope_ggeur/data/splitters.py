"""How a splitter divides one domain's rows among its clients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import NamedTuple

import numpy as np

from federatedscope_ggeur.data.parts import filled_in, registered
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.rng import numpy_generator
from federatedscope_ggeur.settings import NOT_SET, Key, Registry, Rule, whole

_ROUNDING = 1e-9


def lds_matrix(
    client_num: int, num_classes: int, alpha: float, seed: int
) -> np.ndarray:
    """Shares [K, C]: each column ~ Dirichlet(alpha) over all clients, with sum 1."""
    rng = numpy_generator(seed, "partition", "lds")
    columns = [_dirichlet(rng, alpha, client_num) for _ in range(num_classes)]
    return np.stack(columns, axis=1)


def _dirichlet(rng: np.random.Generator, alpha: float, size: int) -> np.ndarray:
    """One draw [size] of the symmetric Dirichlet distribution, for any alpha > 0.

    Gammas are drawn as Gamma(alpha) = Gamma(alpha + 1) U^(1 / alpha) and normalised as
    logarithms (times `unit`), so that a small alpha cannot make all of them underflow.
    """
    unit = min(alpha, 1.0)
    logs = unit * np.log(rng.gamma(alpha + 1.0, size=size))
    logs += np.log1p(-rng.random(size)) * (unit / alpha)
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp((logs - logs.max()) / unit)
    return weights / weights.sum()


class Task(NamedTuple):
    """One domain to divide among its clients: what a splitter is called with.

    Attributes
    ----------
    domain : str
    members : range
        The numbers of its m clients, from 1.
    client_num : int
        K, the clients of all domains.
    num_classes : int
        C.
    seed : int
        See `generator`.
    """

    domain: str
    members: range
    client_num: int
    num_classes: int
    seed: int

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


Splitter = Callable[..., "np.ndarray | Shares"]
SPLITTERS: Registry[Splitter] = Registry("splitter", "data.splitter")


def register_splitter(
    name: str, settings: Sequence[Key] = ()
) -> Callable[[Splitter], Splitter]:
    """Decorator: the function is ``data.splitter: <name>``.

    It is called as ``splitter(task, **arguments)`` for each domain, with a `Task` and
    what ``data.splitter_args`` holds, and returns the `Shares` of the domain's rows
    that the clients get, or only their `of_rows`.

    Parameters
    ----------
    name : str
    settings : sequence of Key
        The arguments of ``data.splitter_args``; one with the default None must be
        given.
    """
    return registered(SPLITTERS, name, settings, SECTION="data.splitter_args")


def _above_zero(largest: float = math.inf) -> Rule:
    limit = " and at most 1" if largest == 1 else ""

    def rule(value) -> str:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if is_number and 0 < value <= largest and math.isfinite(value):
            return ""
        return f"must be a number above 0{limit}, got {value!r}"

    rule.read = float
    return rule


_SKEW = (
    Key("alpha", None, "Of the Dirichlet distribution.", _above_zero()),
    Key(
        "min_per_class",
        0.0,
        "Rows of each class that every client of a domain is dealt before the rest is "
        "divided in those proportions, as far as they go.",
        whole(0),
    ),
)


@register_splitter("iid")
def _iid(task: Task) -> np.ndarray:
    """At random, evenly."""
    return np.full(len(task.members), 1 / len(task.members))


@register_splitter("lda", _SKEW)
def _lda(task: Task, alpha: float, min_per_class: int) -> Shares:
    """Each class in proportions ~ Dirichlet(alpha) over a domain's clients."""
    rng, m = task.generator("lda"), len(task.members)
    columns = [_dirichlet(rng, alpha, m) for _ in range(task.num_classes)]
    return Shares(np.stack(columns, axis=1), min_per_class)


@register_splitter(
    "domain",
    [Key("fraction", NOT_SET, "Share of a client; 1/m if not given.", _above_zero(1))],
)
def _domain(task: Task, fraction: float) -> np.ndarray:
    """Each client gets the same share of its domain's rows."""
    if fraction == NOT_SET:
        return _iid(task)
    m = len(task.members)
    if m * fraction > 1 + _ROUNDING:
        raise ConfigError(
            f"data.splitter_args: fraction {fraction} is too large for domain "
            f"'{task.domain}', which has {m} clients: it may be at most 1/{m}."
        )
    return np.full(m, fraction)


@register_splitter("lds", _SKEW)
def _lds(task: Task, alpha: float, min_per_class: int) -> Shares:
    """Each class in proportions ~ Dirichlet(alpha) over the clients of all domains."""
    matrix = lds_matrix(task.client_num, task.num_classes, alpha, task.seed)
    return Shares(matrix[[number - 1 for number in task.members]], min_per_class)


def find_shares(name: str, args, task: Task) -> Shares:
    """The shares that the splitter called `name` gives.

    Raises
    ------
    ConfigError
        As `read_arguments`; shares that are none.
    """
    given = SPLITTERS.find(name)(task, **read_arguments(name, args))
    shares = given if isinstance(given, Shares) else Shares(given)
    of_rows, m, num_classes = shares.of_rows, len(task.members), task.num_classes
    if of_rows.shape not in ((m,), (m, num_classes)) or not (
        (of_rows >= 0).all() and (of_rows.sum(axis=0) <= 1 + _ROUNDING).all()
    ):
        raise ConfigError(
            f"data.splitter: '{name}' must give shares of shape ({m},) or "
            f"({m}, {num_classes}), 0 or more and at most 1 in all, got {of_rows}"
        )
    if whole(0)(shares.min_per_class):
        raise ConfigError(
            f"data.splitter: min_per_class of '{name}' {whole(0)(shares.min_per_class)}"
        )
    return shares


def divide_rows(labels: np.ndarray, shares: Shares, task: Task) -> list[np.ndarray]:
    """Disjoint ascending row numbers for each member."""
    order, m = task.generator("train").permutation(len(labels)), len(task.members)
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
