"""The closed form `auto`: leave-one-out chooses among closed forms.

Whether domains and classes are confounded in the statistics of clients.

Leave-one-out scores a client's rows, which are of its own domain. If a class is mostly
in one domain, these rows do not show how the class looks in other domains. Then the
scores are too good.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..base import Model
from ..heads import LinearHead, MixtureHead
from .base import ClosedForm, Seen, register_closed_form
from .components import Components, ScoredRows
from .left_out import LeftOut

if TYPE_CHECKING:
    from .lda import LinearDiscriminant
    from .mixture import MixtureDiscriminant
    from .rda import RegularizedDiscriminant


@register_closed_form("auto")
class Automatic(ClosedForm):
    """Chooses between LDA and the mixture discriminant, and their strengths.

    If the settings ask for a scatter for each class, RDA is a candidate, too, alone and
    with the mixture. It takes rows as they are.

    The kinds are tried with all their strengths, unless one is set, and on rows as
    they are and on standardized rows. Dimensions in different units need standardized
    rows. A row is scored by the head of all other rows.

    Hits choose the strength of a kind, and the components of RDA: the share of rows
    that a candidate classifies rightly. Log-losses choose the kind: of the best
    candidates of all kinds, the one with the smallest log-loss at its own best
    temperature is taken. It must not have fewer hits than another by more than one
    standard error. If leave-one-out cannot choose, LDA is taken.

    The components of the mixture are domains. If all rows have one domain, they are
    clients. Clients that differ only in their shares of classes make such a mixture
    look better than it is. So it is tried only if labels and clients are not
    confounded, and must classify more rows rightly than the other kinds, by more than
    one standard error. And each withheld row counts in its log-loss as a sure mistake,
    since the mixture has no component for that row. In a mixture of domains, rows that
    a client withholds count in the same way if the client is alone in its domain.
    Where there are very many clients, their mixture is not tried: it takes time and
    bytes that grow with the square of their number.

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
    by_class : bool
        Whether the scatters of classes are known.

    References
    ----------
    The rule of one standard error: Breiman, Friedman, Olshen, Stone, "Classification
    and regression trees", 1984, section 3.4.3.
    """

    meaning = "`lda`, `mixture` or `rda`, and its strength, by rows that are left out"
    source = "leave-one-out"
    READS = ("lda", "mixture", "rda")
    by_losses = True
    partition_free = False
    takes_prior = takes_ensemble = True
    grain = "client"

    lda: LinearDiscriminant
    mixture: MixtureDiscriminant
    rda: RegularizedDiscriminant

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.lda = copy.copy(self.lda)
        self.choice: ClosedForm | None = None
        self.for_training = False
        self.groups = self.mixture.components
        self.by_class = False

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

    @property
    def takes_class_scatters(self) -> bool:
        asked = self.statistics == "class"
        return asked and not self.for_training and self.known is None

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
            forms += self._of_classes()
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

    def to_leave_out(self, components: Components) -> Components:
        if self.mixture.components == "client":
            return components
        if len(components.domains.unique()) > 1:
            return components.merged("domain")
        if _may_mix_clients(components):
            return components
        return components.merged("class")

    def for_components(self, components: Components) -> ClosedForm:
        other = copy.copy(self)
        by_client = self.groups == "client" or len(components.domains.unique()) == 1
        other.groups = "client" if by_client else "domain"
        other.by_class = components.class_scatters is not None
        if by_client and len(components.clients.unique()) == 1:
            other.groups = ""
        return other

    def finalists(self, hits: Tensor, rows: int) -> list[int]:
        picks, start = [], 0
        for kind in self.kinds():
            end = start + len(kind.candidates())
            picks.append((kind, start + int(hits[start:end].argmax())))
            start = end
        most = max(int(hits[place]) for kind, place in picks if not self._doubted(kind))
        share = most / max(rows, 1)
        enough = most + (rows * share * (1 - share)) ** 0.5

        def is_good(kind: ClosedForm, place: int) -> bool:
            return not self._doubted(kind) or bool(hits[place] > enough)

        good = [(kind, place) for kind, place in picks if is_good(kind, place)]
        # RDA is one kind: hits choose its components as they choose its strength.
        by_class = [place for kind, place in good if kind.name == self.rda.name]
        kept = max(by_class, key=lambda place: (hits[place], place), default=None)
        return [p for _, p in good if p == kept or p not in by_class]

    def _doubted(self, kind: ClosedForm) -> bool:
        """Whether a kind is a mixture of clients, and the settings ask for domains."""
        return kind.grain == "client" and self.mixture.components == "domain"

    def untuned(self) -> ClosedForm:
        return self._taking(self.lda.untuned()) if self.is_open else self

    @property
    def can_start(self) -> bool:
        if self.choice is None:
            return True
        known = self.choice.known
        return self.choice.trainable and not (known is not None and known.ensemble)

    @property
    def lacks_withheld(self) -> str:
        if self.choice is None:
            return ""
        if self._doubted(self.choice):
            return "client"
        return "domain" if self.choice.grain == "domain" else ""

    @property
    def tuned_setting(self) -> str:
        return self.lda.TUNED if self.choice is None else self.choice.tuned_setting

    def described(self) -> dict[str, str | float]:
        return super().described() if self.choice is None else self.choice.described()

    def left_out(self, components: Components) -> LeftOut:
        if self.choice is not None:
            return self.choice.leave_out(components)
        scores = [kind.leave_out(components) for kind in self.kinds()]

        def score(rows: ScoredRows) -> list:
            return [one for each in scores for one in each(rows)]

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

    def _targets(self, form: ClosedForm) -> list[ClosedForm]:
        """The form on rows as they are, and the form on standardized rows.

        Only one form is returned if its settings decide, or if statistics are
        compressed.
        """
        form = copy.copy(form)
        form.statistics = self.statistics
        names = {key.name for key in form.SETTINGS}
        if "standardize" not in names or form.standardize or self.compressed:
            return [form]
        other = copy.copy(form)
        other.standardize = True
        return [form, other]

    def _of_classes(self) -> list[ClosedForm]:
        """RDA with the components of each other kind, if it can be tried."""
        forms: list[ClosedForm] = []
        for components in ("class", self.groups) if self.by_class else ():
            if components:
                form = copy.copy(self.rda)
                form.components = components
                forms.append(form)
        return forms

    def _taking(self, choice: ClosedForm) -> Automatic:
        other = copy.copy(self)
        other.choice = choice
        return other


#: Classes and domains count as confounded if the share is more than this.
LARGER_PART = 0.5
#: Above this share they are confounded in part. Measured in docs/heads.md.
PARTLY_CONFOUNDED = 0.25
#: The share if no two domains have a class in common.
UNLINKED = 1.0
#: Rows times components times columns: beyond, a mixture of clients is not tried. On
#: one core it would take about a minute.
MOST_WORK = 2e10
#: Domains or classes differ if their difference is this many times that of chance.
BEYOND_CHANCE = 2.0
#: Domains also differ if the chance of their shift along the classes is below this.
#: The smallest chance was 2e-5 when the rows of one real domain were divided among
#: domains at random 540 times.
RARE = 1e-6


def _may_mix_clients(components: Components) -> bool:
    """Whether a mixture of clients can be tried."""
    rows = int(components.counts.sum())
    if rows * len(components.counts) * components.dim > MOST_WORK:
        return False
    return confounded_share(components.with_clients_as_domains()) <= LARGER_PART


def confounded_share(components: Components) -> float:
    """The share of the variance between domains that the classes explain: 0 to 1.

    It is 0 if there is one domain, or if domains do not differ, and 1 if no two of
    them have a class in common.

    Parameters
    ----------
    components : Components
        The components of clients.

    Notes
    -----
    The sum ``a_c + b_d`` is fitted to the mean mu_dc of each class c in each domain d,
    weighted by its number of rows n_dc. b_d is the shift of domain d, which is the same
    for all classes. The variance of b over all rows has a part between classes and a
    part within classes. The share of the first part is returned: the part of the shifts
    that looks like a difference of classes. It is 0 if all domains have the same shares
    of classes. With ``L = diag(n_d) - sum_c n_.c n_.c' / n_c``::

        L b = r,  r_d = sum_c n_dc (mu_dc - mu_c)
        share = 1 - tr(b' L b) / tr(b' (diag(n_d) - n n' / N) b)

    If no chain of common classes links all d domains, L has a rank r < d - 1, and the
    shifts between groups of domains are unknown. They are taken to be as large as the
    others, and to lie between classes: the ratio is multiplied by r / (d - 1).

    Two F tests decide whether domains differ. They compare tr(b' L b) with the trace of
    the scatter within components, each divided by its degrees of freedom. The first
    test is in all dimensions. If most dimensions hold only noise, this test may miss a
    shift in a few. So the second test is in the directions of the class means, within
    the dimensions that tell classes apart. A shift that looks like a difference of
    classes lies there.
    """
    parts = components.merged("domain")
    present, place = parts.domains.unique(return_inverse=True)
    if len(present) < 2:
        return 0.0
    counts = torch.zeros(parts.num_classes, len(present), dtype=torch.float64)
    counts[parts.labels, place] = parts.weights
    of_class = parts.merged("class")
    class_means = torch.zeros(parts.num_classes, parts.dim, dtype=torch.float64)
    class_means[of_class.labels] = of_class.means
    apart = parts.weights[:, None] * (parts.means - class_means[parts.labels])
    shifts = apart.new_zeros(len(present), parts.dim).index_add(0, place, apart)
    in_domain, in_class = counts.sum(dim=0), counts.sum(dim=1)
    within = in_domain.diag() - counts.T @ (counts / in_class.clamp(min=1)[:, None])
    values, vectors = torch.linalg.eigh(within)
    told_apart = values > 1e-9 * in_domain.max()
    along = vectors[:, told_apart].T @ shifts
    fitted = (along.square() / values[told_apart, None]).sum()
    effects = vectors[:, told_apart] @ (along / values[told_apart, None])
    contrasts = along / values[told_apart, None].sqrt()
    if not len(contrasts):
        return UNLINKED
    if not _differ(contrasts, parts, of_class):
        return 0.0
    groups = vectors[:, ~told_apart]
    weighed = in_domain[:, None] * groups
    middle = torch.linalg.solve(weighed.T @ groups, weighed.T @ effects)
    centred = effects - groups @ middle
    whole = (in_domain[:, None] * centred.square()).sum()
    known = len(contrasts) / (len(present) - 1)
    return float((1 - known * fitted / whole).clamp(min=0))


def _differ(contrasts: Tensor, parts: Components, of_class: Components) -> bool:
    """Whether domains differ more than chance explains.

    Parameters
    ----------
    contrasts : Tensor of shape (d - 1, D)
        Independent differences between the d domains. By chance alone, each difference
        has the covariance of a row within a component.
    parts, of_class : Components
        `parts` has one component for each class and domain, `of_class` one for each
        class.
    """
    free = parts.total - len(parts.counts)
    if parts.scatter is None or free < 1:
        return bool(contrasts.square().sum() > 0)
    if _ratio(contrasts, parts.scatter / free) > BEYOND_CHANCE:
        return True
    axes = _class_axes(parts, of_class)
    return _chance(contrasts @ axes, axes.T @ parts.scatter @ axes / free, free) < RARE


def _class_axes(parts: Components, of_class: Components) -> Tensor:
    """The directions [D, q] in which class means lie, on standardised dimensions.

    Dimensions in which classes do not differ are left out. The test is valid in these
    directions, because the random errors of class means are independent of those of
    contrasts and scatter. In the directions of the largest shift it would not be valid.
    """
    sizes = parts.deviations()
    apart = of_class.weights.sqrt()[:, None] * (of_class.means - parts.origin) / sizes
    others = len(apart) - 1
    by_chance = parts.within().diagonal() / sizes**2 / (parts.total - len(parts.counts))
    told = apart.square().sum(dim=0) > BEYOND_CHANCE * others * by_chance
    axes = torch.linalg.svd(apart * told, full_matrices=False).Vh[:others]
    return (axes * told / sizes).T


def _ratio(contrasts: Tensor, covariance: Tensor) -> float:
    """The mean square of the contrasts, relative to its expected value by chance.

    Without confounding, it is 1 on average.
    """
    square = float(contrasts.square().sum()) / len(contrasts)
    by_chance = float(covariance.trace())
    return square / by_chance if by_chance > 0 else (float("inf") if square else 0.0)


def _chance(contrasts: Tensor, covariance: Tensor, free: float) -> float:
    """The probability that chance gives contrasts [d-1, q] so large (Dempster 1958).

    The square of a contrast is approximated by ``tr(S)/r`` times a chi-square of r
    degrees of freedom, with r = ``tr(S)^2 / tr(S^2)``. S is estimated from `free` rows,
    so ``tr(S^2)`` is too large by about ``tr(S)^2 / free``.
    """
    size = float(covariance.trace())
    if not size > 0:
        return 1.0
    square = float(covariance.square().sum()) - size**2 / free
    most = float(len(covariance))
    rank = min(size**2 / square, most) if square > 0 else most
    ratio = _ratio(contrasts, covariance)
    # Imported here, because only leave-one-out needs it.
    from scipy.special import fdtrc

    return float(fdtrc(len(contrasts) * rank, free * rank, ratio))
