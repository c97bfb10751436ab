"""The facts of a run: who is asked for what. Derived once, and read by all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Method
from federatedscope_ggeur.models import CLOSED_FORMS, ClosedForm


@dataclass(frozen=True)
class Demands:
    """What a run asks of its clients.

    Attributes
    ----------
    rounds : int
        Rounds of training; 0 where the run ends with round 0.
    federated : bool
        Clients train one model together. Else each trains its own.
    steps : tuple of int
        The augmentation steps of GGEUR in use.
    space : {"raw", "standard", "whitened"}
        The space that is trained in; raw where nothing is trained.
    closed_form : bool
        Round 0 gives a one-shot (closed-form) head.
    uses_statistics : bool
        That head is made of class statistics.
    is_open : bool
        The clients' rows choose that head among candidates.
    keeps_best : bool
        The run leaves the better of the one-shot head and the trained one.
    calibrates : bool
        The head is calibrated after the last round.
    sums : bool
        The server learns of statistics sums over all clients only.
    distributed : bool
        Clients are processes of their own.
    reads_images : bool
        An encoder makes rows of the data.
    plugins : tuple of str
        The modules of the user's own parts.
    chosen : mapping from field to value
        The settings, for the rooms that they belong to and for what parts object to.
    """

    rounds: int = 0
    federated: bool = True
    steps: tuple[int, ...] = ()
    space: str = "raw"
    closed_form: bool = False
    uses_statistics: bool = False
    is_open: bool = False
    keeps_best: bool = False
    calibrates: bool = False
    sums: bool = False
    distributed: bool = False
    reads_images: bool = False
    plugins: tuple[str, ...] = ()
    chosen: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Any:
        return self.chosen[name]

    @property
    def method(self) -> type[Method] | None:
        """The base method."""
        return METHODS.get(self["base_method"])

    @property
    def augmentation(self) -> type[Method] | None:
        """The baseline augmentation, where one stands in the place of GGEUR."""
        return AUGMENTATIONS.get(self["augmentation"])

    @property
    def form(self) -> type[ClosedForm] | None:
        """The one-shot (closed-form) head."""
        return CLOSED_FORMS.get(self["closed_form"])

    @property
    def trains(self) -> bool:
        """There are rounds of training."""
        return self.rounds > 0

    @property
    def statistics(self) -> bool:
        """Round 0 needs class statistics, of each client or as sums."""
        whitens = self.federated and self.space == "whitened"
        return bool(self.steps) or self.uses_statistics or whitens

    @property
    def own_statistics(self) -> bool:
        """Each client sends its own class statistics."""
        return self.statistics and not self.sums

    @property
    def summed_statistics(self) -> bool:
        """Class statistics are added up under masks."""
        return self.statistics and self.sums

    @property
    def shares_space(self) -> bool:
        """All clients train in one space that the server makes.

        Where nobody trains together or sends statistics, each client makes its own.
        """
        is_made = self.trains and self.space != "raw"
        return is_made and (self.federated or self.statistics)

    @property
    def totals(self) -> bool:
        """Each client sends totals of its rows for the space."""
        return self.shares_space and not self.sums

    @property
    def leaves_one_out(self) -> bool:
        """Clients count hits of candidate heads on rows that are left out."""
        return self.is_open and not self.sums

    @property
    def keeps_components(self) -> bool:
        """The server keeps each client's class means, to choose between heads."""
        return (self.is_open or self.keeps_best) and not self.sums
