"""Splitters that divide rows by shares: iid, lda, domain, lds."""

from __future__ import annotations

import numpy as np

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.rng import numpy_generator
from federatedscope_ggeur.settings import NOT_SET, Key, positive, positive_up_to, whole

from .base import ROUNDING, Shares, Task, register_splitter


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
        0.0,
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


@register_splitter(
    "domain",
    [
        Key(
            "fraction",
            NOT_SET,
            "Share of the domain's rows that a client gets; 1/m if not given.",
            positive_up_to(1, not_set_allowed=True),
        )
    ],
)
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
