"""Noise for differential privacy: who adds noise, and what clients send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np
from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.kept_file import row_digests
from federatedscope_ggeur.rng import numpy_generator

from .ledger import Ledger
from .manifest import CLIENT, SERVER, NoiseKeys
from .noisy_release import (
    MOMENTS,
    PublicRows,
    ReleasePlan,
    Words,
    epsilon_of,
    seeded_words,
    system_words,
)

#: Rounding to float32 may move a mean of length 1 so far.
_SLACK = 1e-6


_NO_PLAN = ReleasePlan(0, 0, 0.0, 0.0, False)


def too_few_honest(clients: int, spared: int) -> str:
    """What is wrong if `spared` of the clients may collude; "" if nothing is."""
    if clients >= spared + 2:
        return ""
    return (
        f"lets {spared} of {clients} clients collude, but at least two must be honest"
    )


class NoiseSettings(NoiseKeys):
    """How statistics are released under differential privacy.

    Attributes
    ----------
    plan : ReleasePlan
        The plan for one party that adds all the noise.
    preparation : str
        How rows are prepared before the release.
    class_names : tuple of str
    most_mu : float
        The mu that all releases of a row may spend together.
    most_clients : int
        The most clients that share the noise; 0: any number, for runs on one machine.
    public : callable () -> PublicRows, optional
        Reads the public rows that the server has beside the release.
    """

    plan: ReleasePlan = _NO_PLAN
    preparation: str = ""
    class_names: tuple[str, ...] = ()
    most_mu: float = 0.0
    most_clients: int = 0
    public: Callable[[], PublicRows] | None = None

    def plan_of(self, clients: int) -> ReleasePlan:
        """The plan for a run with this number of clients."""
        if self.noise == SERVER:
            return self.plan
        spared = clients - 1 if self.noise == CLIENT else self.spared(clients)
        return replace(self.plan, clients=clients, spared=spared)

    def spared(self, clients: int) -> int:
        """The number t of colluding clients that is tolerated among `clients`."""
        return clients // 3 if self.tolerated is None else self.tolerated

    def words(self, *key: int | str) -> Words:
        """The random words of one stage, from the system or from the test seed."""
        if self.test_seed is None:
            return system_words
        return seeded_words(numpy_generator(self.test_seed, "noise", *key))

    def observers(self, clients: int) -> dict[str, float]:
        """Epsilon against each kind of observer of a run with this number of clients.

        An infinite epsilon means no protection.
        """
        plan, delta = self.plan_of(clients), self.plan.delta

        def against(adding: int) -> float:
            return epsilon_of(plan.sharers(adding), delta)

        if self.noise == SERVER:
            return {"everyone but the server": against(1), "the server": float("inf")}
        if self.noise == CLIENT:
            # The noise of one client protects even against those who know all other
            # noise.
            return {"everyone": against(1)}
        spared = plan.spared
        epsilons = {"the server": against(clients), "one client": against(clients - 1)}
        if spared:
            who = f"the server and {spared} clients"
            epsilons[who] = against(clients - spared)
        return epsilons


class Releaser:
    """The client's side of a release.

    Parameters
    ----------
    number : int
    features, labels : Tensor of shape (n, D) and (n,)
    settings : NoiseSettings
    """

    def __init__(
        self, number: int, features: Tensor, labels: Tensor, settings: NoiseSettings
    ):
        self._number, self._features, self._labels = number, features, labels
        self.settings = settings
        self._ledger = Ledger(settings.ledger, number)

    @cached_property
    def _rows(self) -> frozenset[bytes]:
        names, salt = self.settings.class_names, self._ledger.salt
        return row_digests(self._features, self._labels, names, salt).rows

    def charge(self, session: bytes, stage: str) -> None:
        """Record a stage in the ledger, before its vector is sent.

        The first stage of a session charges the release.

        Raises
        ------
        GGEURError
            The charge would exceed the limit, or the stage was recorded before. A
            client that has lost its own vector must not send a second one with other
            noise.
        """
        own = self.settings
        self._ledger.charge(
            session.hex(), stage, self._rows, own.preparation, own.plan.mu, own.most_mu
        )

    def vector(self, stage: str, clients: int, centre: Tensor) -> np.ndarray:
        """The client's vector of a stage, int64, with its noise if it adds noise.

        Parameters
        ----------
        stage : {"moments", "spread"}
        clients : int
            How many take part.
        centre : Tensor of shape (D,)
            The point that is subtracted from rows in stage "spread".

        Raises
        ------
        MessageError
            The centre cannot be a mean of rows. So far from all rows, numbers would
            overflow, and one row would change the result more than the noise covers.
        """
        if stage != MOMENTS and not float(centre.double().norm()) <= 1 + _SLACK:
            problem = "lies too far out to be a mean of rows"
            raise MessageError(problem, field="centre", sender="the server")
        own, plan = self.settings, self.settings.plan_of(clients)
        exact = (
            plan.moments(self._features, self._labels)
            if stage == MOMENTS
            else plan.spread(self._features, self._labels, centre)
        )
        if own.noise == SERVER:
            return exact
        return exact + plan.noise(stage, own.words(self._number, stage))
