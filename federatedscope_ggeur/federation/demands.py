"""The facts of a run, derived once and read by all."""

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
        Rounds of training; 0 if the run ends with round 0.
    federated : bool
        Whether clients train one model together. Otherwise each trains its own.
    steps : tuple of int
        The augmentation steps of GGEUR in use.
    space : {"raw", "standard", "whitened"}
        The space of training; raw if nothing is trained.
    closed_form : bool
        Whether round 0 gives a one-shot (closed-form) head.
    uses_statistics : bool
        Whether that head is made of class statistics.
    is_open : bool
        Whether clients' rows choose that head among candidates.
    leaves_out : bool
        Whether rows can be left out of the statistics of that head.
    is_cooled : bool
        Whether heads get a temperature: the one-shot head by left-out rows, a trained
        one by validation rows.
    tells_confidence : bool
        Whether clients also tell how sure the head is of their left-out rows.
    keeps_best : bool
        Whether the run leaves the better of the one-shot head and the trained one.
    personal : bool
        Whether clients make one-shot heads of their own.
    calibrates : bool
        Whether the head is calibrated after the last round.
    sums : bool
        Whether the server learns only sums of statistics over all clients.
    noisy : bool
        Whether statistics are released under differential privacy.
    book : bool
        Whether the server keeps each client's statistics in a book.
    distributed : bool
        Whether each client is a process of its own.
    reads_images : bool
        Whether an encoder makes the rows from images.
    plugins : tuple of str
        The modules of the user's own parts.
    chosen : mapping from field to value
        The settings, for the rooms that use them and for objections.
    """

    rounds: int = 0
    federated: bool = True
    steps: tuple[int, ...] = ()
    space: str = "raw"
    closed_form: bool = False
    uses_statistics: bool = False
    is_open: bool = False
    leaves_out: bool = False
    is_cooled: bool = False
    tells_confidence: bool = False
    keeps_best: bool = False
    personal: bool = False
    calibrates: bool = False
    sums: bool = False
    noisy: bool = False
    book: bool = False
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
        """The baseline augmentation in place of GGEUR, if there is one."""
        return AUGMENTATIONS.get(self["augmentation"])

    @property
    def form(self) -> type[ClosedForm] | None:
        """The one-shot (closed-form) head."""
        return CLOSED_FORMS.get(self["closed_form"])

    @property
    def trains(self) -> bool:
        """Whether there are rounds of training."""
        return self.rounds > 0

    @property
    def statistics(self) -> bool:
        """Whether round 0 needs class statistics, of each client or as sums."""
        whitens = self.federated and self.space == "whitened"
        return bool(self.steps) or self.uses_statistics or whitens

    @property
    def by_client(self) -> bool:
        """Whether exact answers of single clients are seen."""
        return not (self.sums or self.noisy)

    @property
    def reports_scores(self) -> bool:
        """Whether clients tell scores of their rows, where the server has none."""
        return not self.noisy or self["dp.report_scores"]

    @property
    def own_statistics(self) -> bool:
        """Whether each client sends its own class statistics."""
        return self.statistics and self.by_client and not self.book

    @property
    def summed_statistics(self) -> bool:
        """Whether class statistics are summed under masks."""
        return self.statistics and self.sums

    @property
    def shares_space(self) -> bool:
        """Whether all clients train in one space, made by the server.

        If nobody trains together or sends statistics, each client makes its own.
        """
        is_made = self.trains and self.space != "raw"
        return is_made and (self.federated or self.statistics)

    @property
    def totals(self) -> bool:
        """Whether each client sends totals of its rows for the space."""
        return self.shares_space and self.by_client

    @property
    def leaves_one_out(self) -> bool:
        """Whether clients count the hits of candidate heads on left-out rows."""
        compares = self.is_open or (self.keeps_best and self.leaves_out)
        return compares and self.by_client

    @property
    def seeks_temperature(self) -> bool:
        """Whether clients tell the log-loss of the one-shot head on left-out rows."""
        return self.is_cooled and self.leaves_out and self.by_client

    @property
    def scales_trained(self) -> bool:
        """Whether validation rows, if they are enough, choose the trained head's
        temperature."""
        is_tried = self.is_cooled and self.trains and self.by_client
        if not is_tried or self.calibrates or not self.federated:
            return False
        return self.method is None or not self.method.personal

    @property
    def keeps_components(self) -> bool:
        """Whether the server keeps each client's class means, to compare heads or to
        leave rows out."""
        compares = (self.is_open or self.keeps_best) and self.by_client
        return compares or self.seeks_temperature
