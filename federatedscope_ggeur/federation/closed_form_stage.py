"""The head in closed form, as the server keeps and solves it."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from federatedscope_ggeur.federation.messages.statistics_upload import (
    Statistics,
    StatisticsUpload,
)
from federatedscope_ggeur.models import ClosedForm, to_vector
from federatedscope_ggeur.models.closed_forms import (
    ComponentBook,
    Components,
    Solved,
)


class ClosedFormStage:
    """What round 0 ends with, where a run has a head in closed form.

    Parameters
    ----------
    form : ClosedForm
        As the settings name it.
    keeps_best : bool
        The run chooses between this head and the trained one.
    domains : iterable of str
        Of all clients.
    seed : int
    summed : bool
        Statistics are known as sums over all clients only.

    Attributes
    ----------
    params : Tensor or None
        The head's weights, on raw embeddings; None until it is solved.
    """

    def __init__(
        self,
        form: ClosedForm,
        keeps_best: bool,
        domains: Iterable[str],
        seed: int,
        summed: bool = False,
    ):
        self.form, self._seed = form, seed
        self._compares = (form.is_open or keeps_best) and not summed
        self._book: ComponentBook | None = None
        if self._compares or not form.partition_free:
            self._book = ComponentBook(tuple(dict.fromkeys(domains)))
        self.params: Tensor | None = None

    @property
    def solved_params(self) -> Tensor:
        """`params`, once it is solved."""
        assert self.params is not None, "the head in closed form is not solved yet"
        return self.params

    @property
    def candidates(self) -> tuple[ClosedForm, ...]:
        """What the head may be, where clients' rows decide."""
        return self.form.candidates()

    def add(self, upload: StatisticsUpload) -> None:
        """Keep what a client has sent."""
        if self._book is not None:
            self._book.add(upload.statistics, upload.client, upload.domain)

    def components(self) -> Components | None:
        """What clients have sent, where rows are to be left out of it or two heads to
        be chosen between."""
        held = self._held() if self._compares else None
        return held if held is not None and len(held.counts) else None

    def solve(
        self, form: ClosedForm, start: ClosedForm | None, statistics: Statistics
    ) -> tuple[Solved, Tensor | None]:
        """What `form`, one of the `candidates`, makes of the merged `statistics`.

        Training goes on from `start`: the same, another one, or None, random weights.

        Returns
        -------
        Solved
        params : Tensor or None
            The weights that `start` gives, on raw embeddings.

        Raises
        ------
        StatisticsError
            The statistics do not allow that head; it says what to do.
        """
        parts = self._held()
        solved = form.solve(statistics, parts, self._seed)
        self.params = to_vector(solved.model)
        if start is None:
            return solved, None
        if start is form:
            return solved, self.params
        begun = start.solve(statistics, parts, self._seed)
        return solved, to_vector(begun.model)

    def _held(self) -> Components | None:
        if self._book is None or self._book.is_empty:
            return None
        return self._book.components()
