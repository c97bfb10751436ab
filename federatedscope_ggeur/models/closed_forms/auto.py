"""The closed form `auto`: leave-one-out chooses among closed forms."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..base import Model
from ..linear import LinearHead
from ..mixture import MixtureHead
from ..strangeness import Strangeness
from .base import ClosedForm, Seen, Statistics, register_closed_form
from .components import Components, Rows
from .left_out import LeftOut

if TYPE_CHECKING:
    from .lda import LinearDiscriminant
    from .mixture import MixtureDiscriminant


@register_closed_form("auto")
class Automatic(ClosedForm):
    """Chooses between LDA and the mixture discriminant, and their strengths.

    Both kinds are tried with all their strengths, unless one is set, and on rows as
    they are and on standardized rows. Dimensions in different units need standardized
    rows. A row is scored by the head of all other rows.

    Hits choose the strength of a kind: the share of rows that a candidate classifies
    rightly. Log-losses choose the kind: of the best candidates of all kinds, the one
    with the smallest log-loss at its own best temperature is taken. If leave-one-out
    cannot choose, LDA is taken.

    The components of the mixture are domains. If all rows have one domain, they are
    clients. Clients that differ only in their shares of classes make such a mixture
    look better than it is. So it must also classify more rows rightly than the other
    kinds, by more than one standard error, and labels and clients must not be
    confounded. And each withheld row counts in its log-loss as a sure mistake, since
    the mixture has no component for that row.

    If something is known of the classes, the head of this alone and its ensemble with
    LDA are candidates, too. LDA and the mixture then use the prior.

    Attributes
    ----------
    choice : ClosedForm or None
        The closed form that was taken; None before the choice.
    for_training : bool
        Whether training goes on from the head. Then only linear heads are candidates.
    groups : {"domain", "client", ""}
        The components of the mixture; "" if there is only one, so that it equals LDA.

    References
    ----------
    The rule of one standard error: Breiman, Friedman, Olshen, Stone, "Classification
    and regression trees", 1984, section 3.4.3.
    """

    meaning = "`lda` or `mixture`, and its strength, by rows that are left out"
    source = "leave-one-out"
    READS = ("lda", "mixture")
    by_losses = True
    partition_free = False
    takes_prior = takes_ensemble = True
    grain = "client"

    lda: LinearDiscriminant
    mixture: MixtureDiscriminant

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        # Leave-one-out chooses among all candidates, so it replaces Ledoit-Wolf's rule.
        self.lda = copy.copy(self.lda)
        self.lda.rule = "leave_one_out"
        self.choice: ClosedForm | None = None
        self.for_training = False
        self.groups = self.mixture.components

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

        With knowledge of the classes, the head of this alone comes first, and its
        ensemble with LDA follows LDA.
        """
        forms: list[ClosedForm] = [self.lda]
        if self.groups:
            mixture = copy.copy(self.mixture)
            mixture.components = self.groups
            forms.append(mixture)
        if self.known is None:
            forms = [one for form in forms for one in self._targets(form)]
        else:
            plain, *others = [form.knowing(self.known.plain()) for form in forms]
            mixed = [self.lda] if self.known.ensemble and not self.for_training else []
            forms = [self.known.alone(), plain, *mixed, *others]
        return [f for f in forms if f.trainable or not self.for_training]

    def candidates(self) -> tuple[ClosedForm, ...]:
        if self.choice is not None:
            return (self,)
        return tuple(
            self._taking(form) for kind in self.kinds() for form in kind.candidates()
        )

    def for_components(self, components: Components) -> ClosedForm:
        other = copy.copy(self)
        by_client = self.groups == "client" or len(components.domains.unique()) == 1
        other.groups = "client" if by_client else "domain"
        if by_client and len(components.clients.unique()) == 1:
            other.groups = ""
        return other

    def finalists(self, hits: Tensor, rows: int, takes_clients: bool) -> list[int]:
        found, start = [], 0
        for kind in self.kinds():
            end = start + len(kind.candidates())
            found.append((kind, start + kind.pick(hits[start:end], rows)))
            start = end
        most = max(int(hits[place]) for kind, place in found if not self._doubted(kind))
        share = most / max(rows, 1)
        enough = most + (rows * share * (1 - share)) ** 0.5

        def is_good(kind: ClosedForm, place: int) -> bool:
            return not self._doubted(kind) or (takes_clients and hits[place] > enough)

        return [place for kind, place in found if is_good(kind, place)]

    def _doubted(self, kind: ClosedForm) -> bool:
        """Whether a kind is a mixture of clients, and the settings ask for domains."""
        by_client = isinstance(kind, type(self.mixture)) and kind.grain == "client"
        return by_client and self.mixture.components == "domain"

    def untuned(self) -> ClosedForm:
        return self._taking(self.lda.untuned()) if self.is_open else self

    @property
    def can_start(self) -> bool:
        if self.choice is None:
            return True
        known = self.choice.known
        return self.choice.trainable and not (known is not None and known.ensemble)

    @property
    def lacks_withheld(self) -> bool:
        return self.choice is not None and self._doubted(self.choice)

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
            model, report = solved.model, dict(solved.report)
            for name in ("rows", "classes", "left_out"):
                del report[name]
        if not self.for_training:
            if self.known is not None and self.known.ensemble:
                model = self.known.ensemble_of(model, alone=True)
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
