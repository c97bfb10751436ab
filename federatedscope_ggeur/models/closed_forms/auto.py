"""The closed form `auto`: leave-one-out chooses among closed forms."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models.base import Model
from federatedscope_ggeur.models.closed_forms.base import (
    CLOSED_FORMS,
    ClosedForm,
    Seen,
    Statistics,
    register_closed_form,
)
from federatedscope_ggeur.models.closed_forms.components import Components, Rows
from federatedscope_ggeur.models.closed_forms.left_out import LeftOut
from federatedscope_ggeur.models.ensemble import EnsembleHead
from federatedscope_ggeur.models.linear import LinearHead
from federatedscope_ggeur.models.mixture import MixtureHead
from federatedscope_ggeur.models.strangeness import Strangeness

if TYPE_CHECKING:
    from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
    from federatedscope_ggeur.models.closed_forms.ridge import RidgeRegression


@register_closed_form("auto")
class Automatic(ClosedForm):
    """Chooses among LDA, the mixture discriminant, ridge, nearest means and FedCOF.

    Each kind is tried with all its strengths, unless one is set. A candidate's rate is
    the share of rows that it classifies rightly when they are left out. The best
    strength of a kind has the highest rate. The first kind in the order above is taken
    whose rate is within one standard error of the best rate: smaller differences do not
    tell kinds apart. If leave-one-out cannot choose, LDA is taken.

    LDA, the mixture and ridge are tried on rows as they are and on standardized rows.
    Dimensions in different units need standardized rows.

    If text is used (``text.prior``, ``text.ensemble``), the zero-shot head and its
    ensemble with LDA are candidates, too. LDA and the mixture then use the prior.

    Attributes
    ----------
    choice : ClosedForm or None
        The closed form that was taken; None before the choice.
    for_training : bool
        Whether training goes on from the head. Then only linear heads are candidates.

    Raises
    ------
    ConfigError
        Ridge regression has an alpha, which leave-one-out cannot handle.

    References
    ----------
    The rule of one standard error: Breiman, Friedman, Olshen, Stone, "Classification
    and regression trees", 1984, section 3.4.3.
    """

    meaning = "the kind and strength that classify most rows rightly when left out"
    source = "leave-one-out"
    READS = ("lda", "mixture", "ridge", "ncm", "fedcof")
    partition_free = False
    takes_prior = takes_ensemble = True
    grain = "client"

    lda: LinearDiscriminant
    ridge: RidgeRegression

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        if self.ridge.alpha is not None:
            raise ConfigError(
                "ggeur.ridge.alpha: must be -1 with ggeur.closed_form: auto, which "
                "uses ggeur.ridge.strength in its place"
            )
        # Leave-one-out chooses among all candidates, so it replaces Ledoit-Wolf's rule.
        self.lda = copy.copy(self.lda)
        self.lda.rule = "leave_one_out"
        self.choice: ClosedForm | None = None
        self.for_training = False

    @classmethod
    def build_model(cls, in_features: int, num_classes: int) -> Model:
        return MixtureHead(in_features, num_classes)

    @classmethod
    def build_start(cls, in_features: int, num_classes: int) -> Model:
        return LinearHead(in_features, num_classes)

    def as_start(self) -> ClosedForm:
        other = copy.copy(self)
        other.for_training = True
        return other

    @property
    def is_open(self) -> bool:
        return self.choice is None

    def kinds(self) -> list[ClosedForm]:
        """The kinds to choose among, each with its settings.

        With text, the zero-shot head comes first, and its ensemble with LDA follows
        LDA.
        """
        forms = [getattr(self, name) for name in self.READS]
        if self.text is None:
            forms = [one for form in forms for one in self._targets(form)]
        else:
            plain, *others = [form.knowing(self.text.plain()) for form in forms]
            mixed = [self.lda] if self.text.ensemble and not self.for_training else []
            zero_shot = CLOSED_FORMS["zeroshot"]().knowing(self.text)
            forms = [zero_shot, plain, *mixed, *others]
        return [f for f in forms if f.trainable or not self.for_training]

    def candidates(self) -> tuple[ClosedForm, ...]:
        if self.choice is not None:
            return (self,)
        return tuple(
            self._taking(form) for kind in self.kinds() for form in kind.candidates()
        )

    def pick(self, hits: Tensor, rows: int) -> int:
        return _pick_among(self.kinds(), hits, rows)

    def pick_start(self, hits: Tensor, rows: int) -> ClosedForm:
        start = self.as_start()
        kinds = [kind for kind in self.kinds() for _ in kind.candidates()]
        linear = [i for i, kind in enumerate(kinds) if kind.trainable]
        return start.candidates()[start.pick(hits[linear], rows)]

    def pick_among(
        self, takes: Callable[[ClosedForm], bool], hits: Tensor, rows: int
    ) -> ClosedForm:
        """Choose as `pick` does, by the same hits, among kinds that `takes` accepts."""
        places: list[int] = []
        kinds: list[ClosedForm] = []
        start = 0
        for kind in self.kinds():
            end = start + len(kind.candidates())
            if takes(kind):
                kinds.append(kind)
                places += range(start, end)
            start = end
        taken = _pick_among(kinds, hits[places], rows)
        return [one for kind in kinds for one in kind.candidates()][taken]

    def untuned(self) -> ClosedForm:
        return self._taking(self.lda.untuned()) if self.is_open else self

    @property
    def tuned_setting(self) -> str:
        return self.lda.TUNED if self.choice is None else self.choice.tuned_setting

    @property
    def at_grid_end(self) -> bool:
        return self.choice is not None and self.choice.at_grid_end

    def described(self) -> dict[str, str | float]:
        return super().described() if self.choice is None else self.choice.described()

    def left_out(self, components: Components) -> LeftOut:
        if self.choice is not None:
            return self.choice.leave_out(components)
        scores = [kind.leave_out(components) for kind in self.kinds()]

        def score(rows: Rows) -> list:
            return [found for each in scores for found in each(rows)]

        return score

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        choice = self.choice or self.lda.untuned()
        if choice.asks:
            model, report = choice.make(seen)
        else:
            solved = choice.solve(seen.statistics)
            model, report = solved.model, {"logit_scale": solved.report["logit_scale"]}
        if not self.for_training:
            if self.text is not None and self.text.ensemble:
                if not isinstance(model, EnsembleHead):
                    model = EnsembleHead.of(model)
            elif isinstance(model, LinearHead):
                model = MixtureHead.of_linear(model)
        return model, {"closed_form": choice.name, **report}

    def strangeness(self, statistics: Statistics) -> Strangeness | None:
        return None if self.choice is None else self.choice.strangeness(statistics)

    def _targets(self, form: ClosedForm) -> list[ClosedForm]:
        """The form on rows as they are, and the form on standardized rows.

        Only one form is returned if its settings decide, or if statistics are
        compressed.
        """
        form = copy.copy(form)
        form.compressed = self.compressed
        names = {key.name for key in form.SETTINGS}
        if "standardize" not in names or form.standardize or self.compressed:
            return [form]
        other = copy.copy(form)
        other.standardize = True
        return [form, other]

    def _taking(self, choice: ClosedForm) -> Automatic:
        other = copy.copy(self)
        other.choice = choice
        return other


def _pick_among(kinds: Sequence[ClosedForm], hits: Tensor, rows: int) -> int:
    """The index of the candidate to take, given the hits of all candidates of `kinds`.

    It is the best candidate of the first kind within a standard error of the best rate.
    """
    rate = float(hits.max()) / max(rows, 1)
    enough = float(hits.max()) - (rows * rate * (1 - rate)) ** 0.5
    start = 0
    for kind in kinds:
        of_kind = hits[start : start + len(kind.candidates())]
        if of_kind.max() >= enough:
            break
        start += len(of_kind)
    return start + kind.pick(of_kind, rows)
