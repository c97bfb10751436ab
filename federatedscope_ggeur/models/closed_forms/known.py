"""What a run knows of its classes apart from rows, such as their names' features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from ..base import Model
from .components import Components
from .left_out import LeftOut
from .seen import Seen

if TYPE_CHECKING:
    from .base import ClosedForm

#: Plain values for the report of a head.
Report = dict[str, "float | int | str"]


class Known(Protocol):
    """What closed forms ask of such knowledge; see `ClosedForm.knowing`.

    The methods of guesses are called if `prior` is not 0.
    """

    @property
    def prior(self) -> float:
        """A guess of a class mean counts like this many rows; 0: there are none."""

    @property
    def ensemble(self) -> float:
        """The weight of a closed form's logits beside known ones; 0: no such sum."""

    def plain(self) -> Known:
        """The same knowledge without an ensemble."""

    def alone(self) -> ClosedForm:
        """The head that is made of this knowledge alone."""

    def moved_seen(self, seen: Seen) -> tuple[Seen, Report]:
        """Class means moved towards their guesses, for all classes; and a report."""

    def moved_components(
        self, parts: Components
    ) -> tuple[Tensor, Tensor, Tensor, Report]:
        """The means [J, D], weights [J] and labels [J] of moved components.

        There is a component more for each class without rows. The last result is a
        report.
        """

    def prior_left_out(
        self, parts: Components, shrinkages: Sequence[float], priors: str
    ) -> LeftOut:
        """As `DiscriminantLeftOut`, with means moved towards their guesses."""

    def guess(self, fit: Callable[[Tensor], float]) -> tuple[Tensor, Report]:
        """Guesses [C, D] of class means minus the mean of all rows, and a report.

        `fit` returns the factor that fits offsets [C, D] to what is known of rows.
        """

    def with_ensemble(self, score: LeftOut) -> LeftOut:
        """Scores of the ensemble, if there is one; otherwise `score` itself."""

    def ensemble_of(self, head: Model, alone: bool = False) -> Model:
        """The ensemble with a head. One that is an ensemble already stays as it is.

        With `alone`, it is a model of the same kind with the logits of `head`.
        """

    def described(self) -> Report:
        """The ensemble, for a person."""
