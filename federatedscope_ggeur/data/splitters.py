"""How a splitter divides one domain's rows among its clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Callable, NamedTuple

import numpy as np

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.rng import numpy_generator


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
    """One domain to divide among `members`, its clients' numbers."""

    domain: str
    members: range
    value: float | None
    client_num: int
    num_classes: int
    seed: int

    def generator(self, purpose: str) -> np.random.Generator:
        return numpy_generator(self.seed, "partition", self.domain, purpose)


def _even_shares(task: Task) -> np.ndarray:
    return np.full(len(task.members), 1 / len(task.members))


def _lda_shares(task: Task) -> np.ndarray:
    rng, m = task.generator("lda"), len(task.members)
    columns = [_dirichlet(rng, task.value, m) for _ in range(task.num_classes)]
    return np.stack(columns, axis=1)


def _domain_shares(task: Task) -> np.ndarray:
    if task.value is None:
        return _even_shares(task)
    m = len(task.members)
    if m * task.value > 1 + 1e-9:
        raise ConfigError(
            f"data.splitter_args: fraction {task.value} is too large for domain "
            f"'{task.domain}', which has {m} clients: it may be at most 1/{m}."
        )
    return np.full(m, task.value)


def _lds_shares(task: Task) -> np.ndarray:
    matrix = lds_matrix(task.client_num, task.num_classes, task.value, task.seed)
    return matrix[[number - 1 for number in task.members]]


def divide_rows(labels: np.ndarray, shares: np.ndarray, task: Task) -> list[np.ndarray]:
    """Disjoint ascending row numbers for each member.

    `shares` is [m] (of all rows, whatever their class) or [m, C] (of each class).
    """
    order = task.generator("train").permutation(len(labels))
    if shares.ndim == 1:
        pieces = _cut(order, shares)
    else:
        by_class = [
            _cut(order[labels[order] == c], column) for c, column in enumerate(shares.T)
        ]
        pieces = [np.concatenate(parts) for parts in zip(*by_class)]
    return [np.sort(piece) for piece in pieces]


def _cut(rows: np.ndarray, shares: np.ndarray) -> list[np.ndarray]:
    """Consecutive pieces of `rows` by cumulative rounding, so that sizes add up."""
    ends = np.floor(np.cumsum(shares) * len(rows) + 0.5).astype(int)
    return np.split(rows, ends)[:-1]


class Splitter(NamedTuple):
    """How a splitter finds the members' shares, and what its argument may be."""

    shares: Callable[[Task], np.ndarray]
    argument: str = ""  # the one name that splitter_args may hold
    required: bool = False
    largest: float = math.inf


_SPLITTERS = {
    "iid": Splitter(_even_shares),
    "lda": Splitter(_lda_shares, "alpha", required=True),
    "domain": Splitter(_domain_shares, "fraction", largest=1.0),
    "lds": Splitter(_lds_shares, "alpha", required=True),
}


def find_splitter(name: str) -> Splitter:
    """The splitter called `name`; an unknown one is a `ConfigError`."""
    if name not in _SPLITTERS:
        known = ", ".join(_SPLITTERS)
        raise ConfigError(f"data.splitter '{name}' is unknown; known are: {known}.")
    return _SPLITTERS[name]


def check_splitter(name: str, args) -> None:
    """Raise `ConfigError` unless `name` is a splitter that takes `args`."""
    read_argument(name, find_splitter(name), args)


def read_argument(name: str, splitter: Splitter, args) -> float | None:
    """The one number in `args` (FS's form: a list with at most one dict), or None.

    Raises
    ------
    ConfigError
        Not a list of that form, an unknown or missing name, a number out of range.
    """
    if not splitter.argument:
        accepted = "[] (it takes no arguments)"
    else:
        limit = " and at most 1" if splitter.largest == 1 else ""
        accepted = f"[{{'{splitter.argument}': x}}] with x a number above 0{limit}"
        accepted += "" if splitter.required else ", or []"
    wrong = ConfigError(
        f"data.splitter_args: {args!r} does not fit data.splitter '{name}', which "
        f"accepts {accepted}."
    )
    if not isinstance(args, (list, tuple)) or len(args) > 1:
        raise wrong
    given = args[0] if args else {}
    if not isinstance(given, Mapping) or set(given) - {splitter.argument}:
        raise wrong
    value = given.get(splitter.argument)
    if value is None and not given and not splitter.required:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong
    if not (0 < value <= splitter.largest and math.isfinite(value)):
        raise wrong
    return float(value)
