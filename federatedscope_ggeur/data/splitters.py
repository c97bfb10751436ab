"""Splitters (``data.splitter``), which divide a domain's rows among its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, PluginError, did_you_mean
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.rng import numpy_generator
from federatedscope_ggeur.settings import (
    Key,
    Registry,
    kind_of,
    positive,
    positive_share,
    positive_up_to,
    where_of,
    whole,
)
from federatedscope_ggeur.settings.registry import filled_in, registered

from .embeddings import Domain
from .split import deal_evenly

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
        The errors of `read_arguments`. Or the splitter refuses.
    PluginError
        The splitter returns something else, or unusable shares.
    """
    splitter = SPLITTERS.find(name)
    given = splitter(task, **read_arguments(name, args))
    whose = f"the splitter '{name}'{where_of(splitter)}"
    if not isinstance(given, (np.ndarray, Shares, Holders)):
        raise PluginError(
            f"{whose} must return an array of shares, Shares or Holders, but returned "
            f"{kind_of(given)}"
        )
    if not isinstance(given, Holders):
        shares = given if isinstance(given, Shares) else Shares(given)
        _check_shares(whose, shares, task)
        return _by_shares(task.labels, shares, task), _tests(None, task)
    _check_holders(whose, given.of_train, len(task.rows.train), task)
    if given.of_test is not None:
        _check_holders(whose, given.of_test, len(task.rows.test), task)
    return _of_each(given.of_train, task), _tests(given.of_test, task)


def _check_shares(whose: str, shares: Shares, task: Task) -> None:
    of_rows, m, num_classes = shares.of_rows, len(task.members), task.num_classes
    if (
        of_rows.shape not in ((m,), (m, num_classes))
        or of_rows.dtype.kind not in "iuf"
        or not ((of_rows >= 0).all() and (of_rows.sum(axis=0) <= 1 + ROUNDING).all())
    ):
        numbers = of_rows.dtype.kind in "iu"
        raise PluginError(
            f"{whose} must return shares of shape ({m},) or ({m}, {num_classes}), 0 or "
            f"more with a sum of at most 1, but returned {_described(of_rows)}"
            f"{'; numbers of clients stand in Holders(...)' if numbers else ''}"
        )
    if problem := whole(0)(shares.min_per_class):
        raise PluginError(f"{whose}: min_per_class {problem}")


def _described(array: np.ndarray) -> str:
    """Shape and type of an array, and its smallest and largest number."""
    told = f"shape {array.shape} and type {array.dtype}"
    if not array.size or array.dtype.kind not in "iuf":
        return told
    return f"{told}, from {array.min():g} to {array.max():g}"


def _check_holders(whose: str, holders: np.ndarray, rows: int, task: Task) -> None:
    m = len(task.members)
    if (
        holders.shape != (rows,)
        or holders.dtype.kind not in "iu"
        or ((holders < -1) | (holders >= m)).any()
    ):
        raise PluginError(
            f"{whose} must return whole numbers from -1 to {m - 1}, one for each of "
            f"the {rows} rows of '{task.domain}', but returned {_described(holders)}"
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
    order, hands = _deal_first(order, labels, m * shares.min_per_class, m)
    if shares.of_rows.ndim == 1:
        pieces = _cut(order, shares.of_rows)
    else:
        by_class = [
            _cut(order[labels[order] == c], column)
            for c, column in enumerate(shares.of_rows.T)
        ]
        pieces = [np.concatenate(parts) for parts in zip(*by_class)]
    return [np.sort(np.concatenate(parts)) for parts in zip(pieces, hands)]


def _deal_first(
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
    unknown = [n for n in given if n not in keys]
    problems += [f"there is no argument {n}{did_you_mean(n, keys)}" for n in unknown]
    for n, key in keys.items():
        missing = "must be given" if fits and key.in_config is None else ""
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


def lds_matrix(
    client_num: int, num_classes: int, alpha: float, seed: int
) -> np.ndarray:
    """Shares [K, C]. Each column is a draw of Dirichlet(alpha) over all clients."""
    rng = numpy_generator(seed, "partition", "lds")
    columns = [_dirichlet(rng, alpha, client_num) for _ in range(num_classes)]
    return np.stack(columns, axis=1)


def _dirichlet(rng: np.random.Generator, alpha: float, size: int) -> np.ndarray:
    """Draw once from the symmetric Dirichlet distribution: shape [size].

    This works for any alpha > 0, by Gamma(alpha) = Gamma(alpha + 1) U^(1 / alpha). The
    draws are normalised as logarithms (times `unit`), because with a small alpha all of
    them might underflow.
    """
    unit = min(alpha, 1.0)
    logs = unit * np.log(rng.gamma(alpha + 1.0, size=size))
    logs += np.log1p(-rng.random(size)) * (unit / alpha)
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp((logs - logs.max()) / unit)
    return weights / weights.sum()


_SKEW = (
    Key("alpha", None, "Concentration alpha of the Dirichlet distribution.", positive),
    Key(
        "min_per_class",
        0,
        "Rows of each class that every client of a domain gets first, if there are "
        "enough. The Dirichlet shares divide the rest.",
        whole(0),
    ),
)


@register_splitter("iid")
def _iid(task: Task) -> np.ndarray:
    """Rows are divided at random and evenly."""
    return np.full(len(task.members), 1 / len(task.members))


@register_splitter("lda", _SKEW)
def _lda(task: Task, alpha: float, min_per_class: int) -> Shares:
    """Each class is divided ~ Dirichlet(alpha) over the clients of a domain."""
    rng, m = task.generator("lda"), len(task.members)
    columns = [_dirichlet(rng, alpha, m) for _ in range(task.num_classes)]
    return Shares(np.stack(columns, axis=1), min_per_class)


_FRACTION = Key(
    "fraction",
    None,
    "Share of the domain's rows that a client gets; 1/m if not given.",
    positive_up_to(1, not_set_allowed=True),
)


@register_splitter("domain", [_FRACTION])
def _domain(task: Task, fraction: float | None) -> np.ndarray:
    """Each client gets the same share of its domain's rows."""
    if fraction is None:
        return _iid(task)
    m = len(task.members)
    if m * fraction > 1 + ROUNDING:
        raise ConfigError(
            f"data.splitter_args: fraction {fraction} is too large for domain "
            f"'{task.domain}', which has {m} clients: it may be at most 1/{m}."
        )
    return np.full(m, fraction)


@register_splitter("lds", _SKEW)
def _lds(task: Task, alpha: float, min_per_class: int) -> Shares:
    """Each class is divided ~ Dirichlet(alpha) over the clients of all domains."""
    matrix = lds_matrix(task.client_num, task.num_classes, alpha, task.seed)
    return Shares(matrix[[number - 1 for number in task.members]], min_per_class)


_PER_CLIENT = Key(
    "per_client",
    2,
    "Number of classes of each client. The number of clients times this must be a "
    "multiple of the domain's classes.",
    whole(1),
)


@register_splitter("classes", [_PER_CLIENT])
def classes(task: Task, per_client: int) -> np.ndarray:
    """Each client gets equal parts of `per_client` classes.

    There are m clients with r classes each, and C classes in the domain's rows. Each
    class is cut into m r / C equal parts. The parts are dealt at random, so that the
    classes of a client differ. Ten clients with two of ten classes are the 2-class
    setting of FedPG.

    Raises
    ------
    ConfigError
        m r is no multiple of C, r is above C, or a class has too few rows.
    """
    m = len(task.members)
    present, counts = np.unique(task.labels, return_counts=True)
    where = f"domain '{task.domain}', {m} client(s) and {len(present)} classes"
    if per_client > len(present):
        raise ConfigError(
            f"data.splitter_args: per_client {per_client} is more than the number of "
            f"classes ({where}). Lower it."
        )
    parts, left = divmod(m * per_client, max(len(present), 1))
    if left or not parts:
        raise ConfigError(
            f"data.splitter: 'classes' does not fit {where}: clients times per_client, "
            f"{m} x {per_client} = {m * per_client}, must be a multiple of "
            f"{len(present)}, the number of classes. Change "
            "federate.client_num or per_client in data.splitter_args."
        )
    if counts.min() < parts:
        raise ConfigError(
            f"data.splitter: classes cuts every class into {parts} parts ({where}), "
            f"but class {present[counts.argmin()]} has only {counts.min()} row(s). "
            "Set fewer clients or a smaller per_client in data.splitter_args."
        )
    shares = np.zeros((m, task.num_classes))
    hands = _deal(m, per_client, len(present), task.generator("classes"))
    for member, hand in enumerate(hands):
        shares[member, present[hand]] = 1 / parts
    return shares


def _deal(
    hands: int, size: int, kinds: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Choose `size` different kinds for each hand, and each kind equally often.

    Hands get their kinds one after the other. The chance of a kind is its share of the
    remaining places. A kind that must go into all remaining hands goes into each of
    them. So the drawing never has to start again.
    """
    left = np.full(kinds, hands * size // kinds)
    dealt = []
    for waiting in range(hands, 0, -1):
        due = np.flatnonzero(left == waiting)
        free = np.flatnonzero((left > 0) & (left < waiting))
        drawn = free[:0]
        if len(due) < size:
            chances = left[free] / left[free].sum()
            drawn = rng.choice(free, size - len(due), replace=False, p=chances)
        hand = np.sort(np.concatenate([due, drawn]))
        left[hand] -= 1
        dealt.append(hand)
    # The last hands had the least choice. Shuffling keeps any client from being last.
    return [dealt[k] for k in rng.permutation(hands)]


logger = get_logger(__name__)

_USERS_PER_CLIENT = Key(
    "users_per_client",
    1,
    "Number of users whose rows a client gets; other users take no part. -1: all "
    "users, divided evenly.",
    whole(1, not_set_allowed=True),
)


@register_splitter("natural", [_USERS_PER_CLIENT])
def natural(task: Task, users_per_client: int | None) -> Holders:
    """Each client gets all rows of some users, such as FEMNIST's writers.

    The data must say who made each row. If a domain has more users than its clients
    get, users are drawn at random. A client also gets the test rows of its users. Test
    rows of other users are divided evenly, so that the test set stays whole.

    Raises
    ------
    ConfigError
        The data name no users, or too few users.
    """
    train, test = task.rows.train.users, task.rows.test.users
    if train is None:
        raise ConfigError(
            f"data.splitter: natural divides rows by user, but '{task.domain}' has no "
            "user for each row. Use femnist@ggeur, or an array 'users' in the .npz "
            "files of embeddings@ggeur."
        )
    present, m = np.unique(train.numpy()), len(task.members)
    wanted = len(present) if users_per_client is None else m * users_per_client
    if max(m, wanted) > len(present):
        each = f" with {users_per_client} users each" if users_per_client else ""
        raise ConfigError(
            f"data.splitter: natural finds {len(present)} users in domain "
            f"'{task.domain}', too few for its {m} clients{each}. Lower "
            "federate.client_num, or users_per_client in data.splitter_args."
        )
    if wanted < len(present):
        logger.info(
            "natural: %d of the %d users of '%s' take part",
            wanted,
            len(present),
            task.domain,
        )
    chosen = np.sort(task.generator("natural").permutation(present)[:wanted])
    of_test = None if test is None else _holders(test, chosen, m)
    return Holders(_holders(train, chosen, m), of_test)


def _holders(users: Tensor, chosen: np.ndarray, m: int) -> np.ndarray:
    """The position of each row's client, or -1. Users are dealt to clients in turn."""
    places = np.searchsorted(chosen, users.numpy()).clip(max=len(chosen) - 1)
    return np.where(chosen[places] == users.numpy(), places % m, -1)


_SHARE = Key(
    "share",
    0.95,
    "Share of a class's rows for the clients whose main class it is. The other clients "
    "get the rest, evenly.",
    positive_share,
)


@register_splitter("subset", [_SHARE])
def subset(task: Task, share: float) -> Holders:
    """Each client gets most rows of one main class, and a few rows of each other class.

    The share `share` of a class goes to the clients that have it as main class. The
    other rows of the class go evenly to the other clients. If classes have equal size,
    the main class is `share` of each client's rows, up to one row. The domain's clients
    take the classes in turn, so their number must be a multiple of the number of
    classes. One client for each class is the "subset" setting of FedPG.

    Raises
    ------
    ConfigError
        The number of clients is no multiple of the number of classes.
    """
    labels, m = task.labels, len(task.members)
    present = np.unique(labels)
    if m % max(len(present), 1):
        raise ConfigError(
            f"data.splitter: for subset the number of clients of domain "
            f"'{task.domain}' must be a multiple of its {len(present)} classes, but "
            f"is {m}. Change federate.client_num."
        )
    order = task.generator("subset").permutation(len(labels))
    holders = np.full(len(labels), -1)
    for position, c in enumerate(present):
        rows = order[labels[order] == c]
        main, others = _ring(position, len(present), m)
        kept = int(share * len(rows) + 0.5) if len(others) else len(rows)
        holders[rows[:kept]] = np.resize(main, kept)
        holders[rows[kept:]] = np.resize(others, len(rows) - kept)
    return Holders(holders)


def _ring(position: int, classes: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """The clients whose main class is at `position`, and all other clients in an order.

    For each class, the order of the others begins with another client. So no client
    always gets the rows that are left after an even division.
    """
    rounds = np.arange(m // classes)
    steps = np.arange(1, classes)[:, None]
    lanes = classes * ((position + rounds) % len(rounds))
    others = (position + steps) % classes + lanes
    return position + classes * rounds, others.reshape(-1)
