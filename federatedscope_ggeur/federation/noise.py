"""Noise for differential privacy: who adds it, and what clients do before they send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.ledger import Ledger
from federatedscope_ggeur.federation.row_digests import row_digests
from federatedscope_ggeur.geometry.discrete_gaussian import (
    Words,
    seeded_words,
    system_words,
)
from federatedscope_ggeur.geometry.gaussian_privacy import epsilon_of
from federatedscope_ggeur.geometry.noisy_release import (
    MOMENTS,
    PublicRows,
    ReleasePlan,
)
from federatedscope_ggeur.rng import numpy_generator

#: Who adds the noise.
DISTRIBUTED, SERVER, CLIENT = NOISE_BY = ("distributed", "server", "client")
#: Rounding to float32 may move a mean of length 1 so far.
_SLACK = 1e-6


@dataclass(frozen=True)
class NoiseSettings:
    """How statistics are released under differential privacy.

    Attributes
    ----------
    plan : ReleasePlan
        With the noise of one that adds all of it.
    by : {"distributed", "server", "client"}
        Each client a share of the noise; the server all; each client all.
    tolerated : int or None
        t of "distributed": colluding clients whose noise is not needed; None: a third
        of all.
    preparation : str
        What was made of rows before.
    class_names : tuple of str
    ledger : str
        The folder of clients' ledgers; "" keeps them in memory.
    most_mu : float
        What all releases of a row together may spend.
    most_clients : int
        The most clients that share the noise; 0: any number, for runs on one machine.
    test_seed : int or None
        Makes the noise repeat, and so protects nothing.
    public : callable () -> PublicRows, optional
        Reads what the server knows beside the release.
    """

    plan: ReleasePlan
    by: str
    tolerated: int | None = None
    preparation: str = ""
    class_names: tuple[str, ...] = ()
    ledger: str = ""
    most_mu: float = 0.0
    most_clients: int = 0
    test_seed: int | None = None
    public: Callable[[], PublicRows] | None = None

    def plan_of(self, clients: int) -> ReleasePlan:
        """The plan where so many clients take part."""
        if self.by == SERVER:
            return self.plan
        spared = clients - 1 if self.by == CLIENT else self.spared(clients)
        return replace(self.plan, clients=clients, spared=spared)

    def spared(self, clients: int) -> int:
        """t among so many clients."""
        return clients // 3 if self.tolerated is None else self.tolerated

    def words(self, *key: int | str) -> Words:
        """The random words of one stage: of the system, or by the test seed."""
        if self.test_seed is None:
            return system_words
        return seeded_words(numpy_generator(self.test_seed, "noise", *key))

    def observers(self, clients: int) -> dict[str, float]:
        """Epsilon against those who see a run of so many clients; infinite: none."""
        plan, delta = self.plan_of(clients), self.plan.delta

        def against(adding: int) -> float:
            return epsilon_of(plan.sharers(adding), delta)

        if self.by == SERVER:
            return {"everyone but the server": against(1), "the server": float("inf")}
        if self.by == CLIENT:
            # Even to those who know the noise of all others one client's is enough.
            return {"everyone": against(1)}
        spared = plan.spared
        found = {"the server": against(clients), "one client": against(clients - 1)}
        if spared:
            who = f"the server and {spared} clients"
            found[who] = against(clients - spared)
        return found


class Releaser:
    """A client's side of a release.

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

    def charge(self, session: bytes) -> None:
        """Charge the ledger for a session, before its first vector is noted and sent.

        Raises
        ------
        GGEURError
            It would be too much, or the session was charged before: who has lost what
            it sent must not send other noise.
        """
        own = self.settings
        self._ledger.charge(
            session.hex(), self._rows, own.preparation, own.plan.mu, own.most_mu
        )

    def vector(self, stage: str, clients: int, centre: Tensor) -> np.ndarray:
        """What the client adds in a stage: int64, with its noise if it adds any.

        Parameters
        ----------
        stage : {"moments", "spread"}
        clients : int
            How many take part.
        centre : Tensor of shape (D,)
            What rows are taken from in stage "spread".

        Raises
        ------
        MessageError
            The centre lies where no mean of rows can. Far from all rows, numbers would
            overflow, and one row would change more than the noise allows for.
        """
        if stage != MOMENTS and not float(centre.double().norm()) <= 1 + _SLACK:
            problem = "lies where no mean of rows can"
            raise MessageError(problem, field="centre", sender="the server")
        own, plan = self.settings, self.settings.plan_of(clients)
        exact = (
            plan.moments(self._features, self._labels)
            if stage == MOMENTS
            else plan.spread(self._features, self._labels, centre)
        )
        if own.by == SERVER:
            return exact
        return exact + plan.noise(stage, own.words(self._number, stage))
