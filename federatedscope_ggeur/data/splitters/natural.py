"""Splitter ``natural``: divide rows by the users who made them."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.settings import Key, whole

from .base import Holders, Task, register_splitter

logger = get_logger(__name__)

_USERS_PER_CLIENT = Key(
    "users_per_client",
    1.0,
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
    found = np.searchsorted(chosen, users.numpy()).clip(max=len(chosen) - 1)
    return np.where(chosen[found] == users.numpy(), found % m, -1)
