"""The facts of a run. They are derived once from the settings and read everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from federatedscope_ggeur.data import NO_TRANSFORM
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Method
from federatedscope_ggeur.models import (
    CLOSED_FORMS,
    OTHER_MODELS,
    ClosedForm,
    chosen_other,
)
from federatedscope_ggeur.settings import Section

S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Demands:
    """The facts of a run that follow from its settings.

    Attributes
    ----------
    rounds : int
        The number of rounds of training; 0 if the run ends with round 0.
    federated : bool
        Whether clients train one model together. Otherwise each trains its own.
    steps : tuple of int
        The augmentation steps of GGEUR that the run uses.
    space : {"raw", "standard"}
        The space of training; raw if nothing is trained.
    closed_form : bool
        Whether round 0 gives a one-shot (closed-form) head.
    uses_statistics : bool
        Whether the one-shot head is made from class statistics.
    class_scatters : bool
        Whether clients get a scatter for each class to leave rows out of.
    grain : {"class", "domain", "client"}
        Whose counts and means clients get to leave rows out of; see `ClosedForm.grain`.
    is_open : bool
        Whether the run chooses the one-shot head among candidates by clients' rows.
    compares_kinds : bool
        Whether log-losses choose among several kinds of one-shot heads.
    leaves_out : bool
        Whether rows can be left out of the statistics of the one-shot head.
    is_cooled : bool
        Whether heads get a temperature. Left-out rows choose it for the one-shot head,
        and validation rows, or rows held out of training, for a trained head.
    tells_confidence : bool
        Whether clients also report how sure the head is of their left-out rows.
    keeps_best : bool
        Whether the run leaves the better of the one-shot head and the trained one, or
        their mean.
    personal : bool
        Whether clients make one-shot heads of their own.
    calibrates : bool
        Whether the head is calibrated after the last round.
    only_totals : bool
        Whether the server sees statistics only as totals over all clients.
    noisy : bool
        Whether the server gets statistics with noise in place of exact ones. Then no
        exact number of rows is told to anybody.
    reports_scores : bool
        Whether clients report scores of their rows if the server has no rows.
    brings_totals : bool
        Whether an exchange asks for the class statistics itself, and the head may
        depend on nothing but their totals.
    distributed : bool
        Whether each client is a process of its own.
    reads_images : bool
        Whether an encoder makes the rows from images.
    plugins : tuple of str
        The modules of the user's own parts.
    min_samples : int
        The min-count threshold.
    pooled_geometry : bool
        Whether GGEUR draws along one shape for all classes, not one for each class.
    client_num : int
        The number of clients; 0 if the data decide it.
    splits : tuple of str
        The splits that are scored.
    batch_or_epoch : {"batch", "epoch"}
        What `TrainingSettings.local_update_steps` counts.
    best_by : str
        The score by which the best round is chosen.
    transform : str
        The name of the transform of rows, see `data.named_transform`.
    chosen : mapping from field to value
        All settings by name: `of` reads them, and objections name them.
    """

    rounds: int = 0
    federated: bool = True
    steps: tuple[int, ...] = ()
    space: str = "raw"
    closed_form: bool = False
    uses_statistics: bool = False
    class_scatters: bool = False
    grain: str = "class"
    is_open: bool = False
    compares_kinds: bool = False
    leaves_out: bool = False
    is_cooled: bool = False
    tells_confidence: bool = False
    keeps_best: bool = False
    personal: bool = False
    calibrates: bool = False
    only_totals: bool = False
    noisy: bool = False
    reports_scores: bool = True
    brings_totals: bool = False
    distributed: bool = False
    reads_images: bool = False
    plugins: tuple[str, ...] = ()
    min_samples: int = 5
    pooled_geometry: bool = False
    client_num: int = 0
    splits: tuple[str, ...] = ("test",)
    batch_or_epoch: str = "epoch"
    best_by: str = "val_loss"
    transform: str = NO_TRANSFORM
    chosen: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def of(self, section: type[S], **more: Any) -> S:
        """The run's settings that `section` declares; `more` has its other fields."""
        return section.of(self.chosen, **more)

    def __getitem__(self, name: str) -> Any:
        return self.chosen[name]

    def __contains__(self, name: str) -> bool:
        return name in self.chosen

    @property
    def method(self) -> type[Method] | None:
        """The base method."""
        return METHODS.get(self.chosen["base_method"])

    @property
    def augmentation(self) -> type[Method] | None:
        """The baseline augmentation in place of GGEUR, if there is one."""
        return AUGMENTATIONS.get(self.chosen["augmentation"])

    @property
    def form(self) -> type[ClosedForm] | None:
        """The one-shot (closed-form) head."""
        return CLOSED_FORMS.get(self.chosen["closed_form"])

    @property
    def image_model(self) -> str:
        """The setting that chooses a model of images; "" if the run has none."""
        name = chosen_other(self)
        return name if name and OTHER_MODELS[name].takes_images else ""

    @property
    def trains(self) -> bool:
        """Whether there are rounds of training."""
        return self.rounds > 0

    @property
    def statistics(self) -> bool:
        """Whether round 0 needs class statistics, of each client or as totals."""
        return bool(self.steps) or self.uses_statistics

    @property
    def by_client(self) -> bool:
        """Whether the server sees exact answers of single clients."""
        return not (self.only_totals or self.noisy)

    @property
    def own_statistics(self) -> bool:
        """Whether each client sends its own class statistics."""
        return self.statistics and self.by_client and not self.brings_totals

    @property
    def shares_space(self) -> bool:
        """Whether all clients train in one space that the server makes.

        If clients neither train together nor send statistics, each makes its own space.
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
        """Whether clients report the log-loss of the one-shot head on left-out rows."""
        return self.is_cooled and self.leaves_out and self.by_client

    @property
    def asks_losses(self) -> bool:
        """Whether clients report log-losses of one-shot heads on left-out rows.

        They choose the temperature, and the kind of head if several are compared.
        """
        compares = self.compares_kinds and self.leaves_one_out
        return self.seeks_temperature or compares

    @property
    def scales_trained(self) -> bool:
        """Whether rows not trained on choose the temperature of the trained head.

        At run time there may be too few such rows.
        """
        is_tried = self.is_cooled and self.trains and self.by_client
        if not is_tried or self.brings_totals or self.calibrates:
            return False
        if not self.federated:
            return False
        return self.method is None or not self.method.personal

    @property
    def keeps_components(self) -> bool:
        """Whether the server keeps the class means of each client.

        They are needed to compare heads and to leave rows out.
        """
        compares = (self.is_open or self.keeps_best) and self.by_client
        return compares or self.seeks_temperature
