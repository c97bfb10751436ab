"""The base class of closed forms: models computed from class statistics.

Most closed forms are functions of the merged statistics alone. So every partition of
the data gives the same model. The other closed forms set `partition_free` to False.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from federatedscope_ggeur.errors import (
    ConfigError,
    PluginError,
    StatisticsError,
    setting,
)
from federatedscope_ggeur.geometry import MissingScatterError, Statistics
from federatedscope_ggeur.settings import (
    NOT_SET,
    Key,
    Objection,
    Objections,
    Registry,
    check_class,
    check_returned,
    fraction,
    is_of_plugin,
    kind_of,
    one_of,
    where_of,
)

from ..base import Model
from ..heads import LinearHead, MixtureHead
from .components import Components, deviations
from .left_out import LeftOut
from .new_rows import NewRows

#: An unseen class scores the mean of the seen ones less this, at every row. So it is
#: never the largest, not even by rounding, and training can still raise it. Measured on
#: embeddings of Caltech-101, this start trains unseen classes best.
BELOW = 1e-3

#: Shares of the spherical covariance. The largest comes first: it wins a tie. The grid
#: reaches far down, because dimensions in different units need small shares.
SHRINKAGES = (0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 1e-4, 1e-5, 1e-6)
#: The share if leave-one-out is impossible or decides nothing. It was found on data
#: that are not in this repository.
UNTUNED_SHRINKAGE = 0.3

#: Multiples of a mean eigenvalue, also the largest first.
STRENGTHS = (
    10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001,
    3e-4, 1e-4, 3e-5, 1e-5, 1e-6, 1e-7,
)  # fmt: skip
#: Smaller values are not tried on compressed statistics: they would show the rounding.
LEAST_COMPRESSED = 0.01

#: If more than this share of the common covariance is spherical, the weights nearly
#: equal the class means, and so show them.
MOST_SPHERICAL = 0.6


def priors_key(meaning: str) -> Key:
    """The setting `priors`: ``"counts"``, or ``"none"`` for equal priors."""
    return Key("priors", "counts", meaning, one_of("counts", "none"))


def shrinkage_key(meaning: str, whose: str = "the common") -> Key:
    """The setting `shrinkage`, a share. If not set, leave-one-out chooses the share."""
    return Key(
        "shrinkage",
        None,
        f"{meaning}weight of the spherical covariance in {whose} one, from 0 to 1; -1: "
        "leave-one-out chooses it.",
        fraction(not_set_allowed=True),
    )


def standardize_key(meaning: str) -> Key:
    """The setting `standardize`, off by default."""
    return Key(
        "standardize",
        False,
        f"{meaning}divide each dimension by its standard deviation first. `auto` "
        "tries both.",
        one_of(True, False),
    )


@dataclass(frozen=True)
class Seen:
    """The input of a closed form: statistics of the C' classes that have samples.

    Attributes
    ----------
    statistics : Statistics
        The merged statistics of all clients. They have the scatters that the form's
        `NEEDS` names. All tensors below are float64.
    classes : list of int
        The C' classes with samples, ascending. Row i of each tensor below belongs to
        `classes[i]`.
    counts : Tensor of shape (C',)
        Rows of each class, or the sums of their weights.
    total : float
        N, the number of all rows, or the sum of their weights.
    means : Tensor of shape (C', D)
        Class means.
    origin : Tensor of shape (D,)
        The mean of all rows.
    offsets : Tensor of shape (C', D)
        Class means minus `origin`. Work with these: embeddings may lie far from zero.
    components : Components
        Counts, means and scatters of each class and client or domain, if the form's
        `grain` asks for them; otherwise of each class.
    seed : int
        The seed of every random draw.
    within : Tensor of shape (D, D)
        The scatter of all rows around the means of their classes. Only for `NEEDS`
        "pooled" or "class".
    dim : int
        The dimension D.
    num_classes : int
        C, including classes without samples.
    """

    statistics: Statistics
    classes: list[int]
    counts: Tensor
    total: float
    means: Tensor
    origin: Tensor
    offsets: Tensor
    components: Components
    seed: int

    @classmethod
    def of(
        cls, statistics: Statistics, components: Components | None = None, seed: int = 0
    ) -> Seen:
        classes = statistics.classes
        counts, means = statistics.weights[classes], statistics.means[classes]
        total = float(counts.sum())
        origin = (counts / total) @ means
        offsets = means - origin
        if components is None:
            components = Components.of_classes(statistics)
        return cls(
            statistics, classes, counts, total, means, origin, offsets, components, seed
        )

    def deviations(self) -> Tensor:
        """The standard deviation of each dimension over all rows: shape (D,)."""
        between = self.counts @ self.offsets.square()
        return deviations((self.within.diagonal() + between) / self.total, self.origin)

    def divided(self, by: Tensor) -> Seen:
        """The statistics of the same rows with dimensions divided by `by` [D]."""
        nowhere = torch.zeros_like(self.origin)
        statistics = self.statistics.mapped(nowhere, lambda rows: rows / by)
        return Seen.of(statistics, self.components.divided(by), self.seed)

    @cached_property
    def within(self) -> Tensor:
        """The within-class scatter: shape (D, D). For `NEEDS` "pooled" or "class"."""
        return self.statistics.scatter()

    @property
    def components_of_classes(self) -> Components:
        """One component for each class, without a scatter."""
        return Components.of_classes(self.statistics.to("means"))

    @property
    def rows(self) -> int:
        """The number of rows, whatever their weights."""
        return int(self.statistics.counts.sum())

    @property
    def dim(self) -> int:
        return len(self.origin)

    @property
    def num_classes(self) -> int:
        """C, the number of classes, including those without samples."""
        return self.statistics.num_classes

    def scatter(self, c: int) -> Tensor:
        """The scatter of class c alone: shape (D, D). Only for `NEEDS` "class"."""
        return self.statistics.scatter(c)

    def log_priors(self, priors: str) -> Tensor:
        """Log priors of shape (C',). ``"none"`` gives zeros, for equal priors."""
        if priors == "none":
            return torch.zeros_like(self.counts)
        return (self.counts / self.total).log()


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


#: The statistics that a closed form may need, from the least to the most: counts and
#: means; also one scatter summed over classes; or also one scatter for each class.
NEEDS = ("means", "pooled", "class")

Part = TypeVar("Part", bound="type[ClosedForm]")

CLOSED_FORMS: Registry[type[ClosedForm]] = Registry(
    "closed form",
    "closed_form",
    taken=("none",),
    removed={
        "qda": "take rda, which draws each covariance to the common one",
        "fedcof": "take lda with ggeur.statistics compressed, which sends less",
        "fisher": "take ridge or lda; one of them was always as good",
    },
)


def register_closed_form(name: str) -> Callable[[Part], Part]:
    """Decorator: register a subclass of `ClosedForm` as ``ggeur.closed_form: <name>``.

    Its `SETTINGS` become the keys ``ggeur.<name>.<setting>``.

    Raises
    ------
    TypeError
        The class is no `ClosedForm`, has no `work_out`, or its `NEEDS` is unknown.
    ValueError
        The name is taken.

    Examples
    --------
    >>> @register_closed_form("means")
    ... class Means(ClosedForm):
    ...     NEEDS = "means"
    ...     def work_out(self, seen):
    ...         bias = -(seen.means ** 2).sum(dim=1) / 2
    ...         return linear_head(seen.means, bias, seen), {}
    """

    CLOSED_FORMS.require_name(name)

    def register(part: Part) -> Part:
        check_class(f"the closed form '{name}'", part, ClosedForm, ("work_out",))
        if part.NEEDS not in NEEDS:
            raise TypeError(f"{name}.NEEDS must be one of {NEEDS}, got {part.NEEDS!r}")
        return CLOSED_FORMS.add(name, part)  # type: ignore[return-value]

    return register


def build_closed_form(
    name: str, sections: Mapping[str, Mapping[str, object]]
) -> ClosedForm:
    """Make the closed form called `name` from the settings of a config.

    Parameters
    ----------
    name : str
    sections : mapping from a closed form's name to its settings
        Sections of a config. Other names are ignored. A missing setting has its
        default.

    Raises
    ------
    ConfigError
        There is no such closed form, or a setting has a wrong value.
    """
    part = CLOSED_FORMS.find(name)
    given = sections.get(name, {})
    own: dict[str, Any] = {
        k.name: given[k.name] for k in part.SETTINGS if k.name in given
    }
    return part(**own, **{o: build_closed_form(o, sections) for o in part.READS})


@dataclass(frozen=True)
class Solved:
    """The result of a closed form: a frozen float32 model in evaluation mode, and a
    report.

    The report describes the model in plain values.
    """

    model: Model
    report: dict[str, float | int | str]


class ClosedForm:
    """Base class of closed forms. Subclasses define `work_out` and the attributes
    below.

    Parameters
    ----------
    **settings
        Values for `SETTINGS` by name, as in a config, and the closed forms of `READS`
        by name. None means "not set". Missing ones have their defaults. All become
        attributes.

    Attributes
    ----------
    name, chosen_by : str
        The form's own name, and the name of the setting that chooses it.
        `register_closed_form` sets both.
    meaning, source : str
        A description in one line, and the source.
    SETTINGS : tuple of Key
    READS : tuple of str
        Other closed forms whose settings this form uses, too.
    NEEDS : {"means", "pooled", "class"}
        The statistics that the form needs. Clients send no more.
    trainable : bool
        Whether training can go on from the model.
    partition_free : bool
        Whether the form is a function of the merged statistics alone.
    from_sums : bool
        Whether the form can be computed from totals over all clients.
    from_noise : bool
        Whether a head like this form's can be made from statistics with noise.
    asks : bool
        Whether clients are asked for statistics.
    needs_known : bool
        Whether the form is made of what is known apart from rows.
    standardize : bool
        Whether the dimensions of the rows are divided by their standard deviations.
    by_losses : bool
        Whether log-losses choose among several `finalists`.
    statistics : str
        ``ggeur.statistics``, the setting; "" if unknown.
    takes_weights : bool
        Whether rows may have weights, so that a row of weight 2 counts as two.
    takes_prior, takes_ensemble : bool
        Whether guesses can be a prior of the class means, and whether known logits can
        be added to the form's logits.
    known : Known or None
        What is known of the classes apart from rows; see `knowing`.
    grain : {"class", "domain", "client"}
        The groups of rows that the form is computed from. Leave-one-out leaves rows out
        of the same groups.
    TUNED : str
        The setting that leave-one-out chooses; "" if there is none. Its value is None
        until it is chosen.
    GRID : tuple of float
        The values of that setting to try, the most regular first.
    UNTUNED : float
        The value if leave-one-out cannot choose.

    Raises
    ------
    ConfigError
        A value is out of range.
    """

    name: ClassVar[str] = ""
    chosen_by: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    source: ClassVar[str] = ""
    SETTINGS: ClassVar[tuple[Key, ...]] = ()
    READS: ClassVar[tuple[str, ...]] = ()
    NEEDS: ClassVar[str] = "pooled"
    trainable: ClassVar[bool] = True
    partition_free: ClassVar[bool] = True
    asks: ClassVar[bool] = True
    needs_known: ClassVar[bool] = False
    by_losses: ClassVar[bool] = False
    standardize: bool = False
    statistics: str = ""
    takes_weights: ClassVar[bool] = False
    takes_prior: ClassVar[bool] = False
    takes_ensemble: ClassVar[bool] = False
    known: Known | None = None
    grain: str = "class"
    from_sums: ClassVar[bool] = False
    from_noise: ClassVar[bool] = False
    TUNED: ClassVar[str] = ""
    GRID: ClassVar[tuple[float, ...]] = ()
    UNTUNED: ClassVar[float] = 0.0

    def __init__(self, **settings: Any):
        for other in self.READS:
            form = settings.pop(other, None) or CLOSED_FORMS[other]()
            setattr(self, other, form)
        for key in self.SETTINGS:
            value = settings.pop(key.name, key.default)
            problem = key.rule(NOT_SET if value is None else value)
            if problem:
                raise ConfigError(f"ggeur.{self.name}.{key.name}: {problem}")
            setattr(self, key.name, None if value is None else key.read(value))
        if settings:
            raise TypeError(
                f"the closed form {self.name} has no setting {', '.join(settings)}"
            )

    @classmethod
    def objections(cls, run: Any) -> Objections:
        """Yield the settings of a run that conflict with this head."""
        if not cls.trainable:
            why = "because training cannot go on from that head"
            yield Objection(cls.chosen_by, {"init": ["random"]}, why)
        hidden = {"mlp_hidden_dim": [0]}
        yield Objection(cls.chosen_by, hidden, "which has no hidden layer")

    @classmethod
    def build_model(cls, in_features: int, num_classes: int) -> Model:
        """An empty model of the kind that this form makes, with any parameters."""
        return LinearHead(in_features, num_classes)

    @classmethod
    def build_start(cls, in_features: int, num_classes: int) -> Model:
        """An empty model of the kind that training goes on from; see `build_model`."""
        return cls.build_model(in_features, num_classes)

    def as_start(self) -> ClosedForm:
        """The variant of this closed form whose head training can go on from."""
        return self

    def knowing(self, known: Known | None) -> ClosedForm:
        """A copy of this form with `known`. The forms of `READS` get it too."""
        other = copy.copy(self)
        other.known = known
        for name in self.READS:
            setattr(other, name, getattr(self, name).knowing(known))
        return other

    @property
    def can_start(self) -> bool:
        """Whether training can start at the head that this form makes."""
        return self.trainable

    @property
    def lacks_withheld(self) -> str:
        """Whose withheld rows the form may classify wrongly, since it has no component
        for them: "client", each client's; "domain", those of clients that are alone in
        their domains; "", nobody's."""
        return ""

    @classmethod
    def leaves_out(cls) -> bool:
        """Whether the form can score rows that are left out; see `left_out`."""
        return cls.left_out is not ClosedForm.left_out

    @property
    def compressed(self) -> bool:
        """Whether the statistics are rounded. If so, small strengths are not tried."""
        return self.statistics == "compressed"

    @property
    def takes_class_scatters(self) -> bool:
        """Whether clients get a scatter for each class, to leave rows out of these."""
        return self.NEEDS == "class"

    @property
    def is_open(self) -> bool:
        """Whether leave-one-out must still choose a setting."""
        return bool(self.TUNED) and getattr(self, self.TUNED) is None

    @property
    def chosen(self) -> float:
        """The value of the setting `TUNED`; `UNTUNED` if none is chosen yet."""
        value = getattr(self, self.TUNED)
        return self.UNTUNED if value is None else value

    def candidates(self) -> tuple[ClosedForm, ...]:
        """The forms that leave-one-out chooses among, the most regular first."""
        if not self.is_open:
            return (self,)
        return tuple(self.tuned(value) for value in self.grid)

    def to_leave_out(self, components: Components) -> Components:
        """What clients get of all clients' components, to leave rows out."""
        return components.merged(self.grain)

    def for_components(self, components: Components) -> ClosedForm:
        """The form whose `candidates` suit the result of `to_leave_out`."""
        return self

    def finalists(self, hits: Tensor, rows: int) -> list[int]:
        """The indices of the candidates among which log-losses choose, ascending.

        By default it is the one with the most hits, the first if several have most.

        Parameters
        ----------
        hits : Tensor of shape (candidates,), int64
        rows : int
        """
        return [int(hits.argmax())]

    @property
    def grid(self) -> tuple[float, ...]:
        """The values of `GRID` to try.

        Small values are left out if the statistics are compressed, and so rounded.
        """
        least = LEAST_COMPRESSED if self.compressed else 0.0
        return tuple(value for value in self.GRID if value >= least)

    @property
    def tuned_setting(self) -> str:
        """The name of the setting that leave-one-out chooses; "" if there is none."""
        return self.TUNED

    def tuned(self, value: float) -> ClosedForm:
        """A copy of this form with `value` for the setting `TUNED`."""
        other = copy.copy(self)
        setattr(other, self.TUNED, value)
        return other

    def untuned(self) -> ClosedForm:
        """The form to take if leave-one-out cannot choose."""
        return self.tuned(self.UNTUNED) if self.is_open else self

    def described(self) -> dict[str, str | float]:
        """The form's name and the value of its tuned setting, for a person."""
        named: dict[str, str | float] = {"closed_form": self.name}
        if self.standardize:
            named["standardize"] = True
        return {**named, self.TUNED: self.chosen} if self.TUNED else named

    def left_out(self, components: Components) -> LeftOut:
        """Make the function that scores rows by each of `candidates`, each row left
        out.

        `components` are those of clients. A form with a setting to choose must define
        this.
        """
        raise NotImplementedError

    def leave_out(self, components: Components) -> LeftOut:
        """Leave rows out as `left_out` does, on standardized rows if `standardize` is
        set.

        The deviations are those of all rows, including the row left out.
        """
        if not self.standardize:
            return self.left_out(components)
        by = components.deviations()
        score = self.left_out(components.standardized)
        return lambda rows: score(rows.divided(by))

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        """Compute the model and a report on it.

        The model is of the kind that `build_model` makes. The report has plain values.

        Raises
        ------
        StatisticsError
            The model cannot be computed from these statistics.
        """
        raise NotImplementedError

    def seen(self, statistics: Statistics) -> Seen:
        """Turn the merged statistics into the argument of `work_out`."""
        seen = Seen.of(statistics)
        return seen.divided(seen.deviations()) if self.standardize else seen

    def make(self, seen: Seen) -> tuple[Model, dict]:
        """Compute the model as `work_out` does.

        If `standardize` is set, it is computed on standardized rows, but takes rows
        that are not standardized.
        """
        if not self.standardize:
            return self.work_out(seen)
        by = seen.deviations()
        model, report = self.work_out(seen.divided(by))
        _divide_inputs(model, by)
        return model, {**report, "standardize": True}

    def new_rows(self, seen: Seen) -> NewRows | None:
        """How the head of `work_out` scores rows that it has not seen.

        It gives a head that is made of totals its temperature. None if that is unknown.
        """
        return None

    def temperature_of(self, solved: Solved, statistics: Statistics) -> float | None:
        """The temperature of a head that `solve` made of these totals, by `new_rows`;
        None if it is unknown."""
        form = self.tuned(float(solved.report[self.TUNED])) if self.is_open else self
        rows = form.new_rows(form.seen(statistics))
        return None if rows is None else rows.temperature()

    def shows_means(self, statistics: Statistics) -> bool:
        """Whether the head's weights nearly equal the class means and reveal them."""
        return True

    def solve(
        self,
        statistics: Statistics,
        components: Components | None = None,
        seed: int = 0,
    ) -> Solved:
        """Compute the model from all clients' merged statistics.

        A form that is not `partition_free` also uses the `components` of the clients.
        By default all rows count as one client's. `seed` decides all random draws.

        Weights and biases have the mean zero over the classes with samples. This
        changes no probability. A class without samples never has the largest logit.
        Everything is computed in float64 and relative to the overall mean, so that data
        may lie far from the origin. The result is rounded to float32.

        Raises
        ------
        StatisticsError
            There are no samples, a needed part of the statistics is missing, a
            covariance is not positive definite, or weights are too large for float32.
        PluginError
            A user's own form reads a scatter that its `NEEDS` does not ask for, or
            returns something else than a model and a report.
        """
        if not statistics.classes:
            raise StatisticsError(
                f"the {self.name} head cannot be computed, because no client sent "
                f"statistics of any class; lower {setting('min_samples')}, or train a "
                f"head: {setting('closed_form')} none, {setting('init')} random, "
                f"{setting('keep')} trained"
            )
        seen = Seen.of(statistics, components, seed)
        try:
            made = self.make(seen)
        except MissingScatterError as error:
            if not is_of_plugin(type(self)):
                raise
            raise PluginError(
                f"work_out of the closed form '{self.name}'{where_of(self.work_out)}: "
                f'{error}, because NEEDS = "{self.NEEDS}"; set NEEDS = "pooled", or '
                '"class" for a covariance of each class'
            ) from error
        model, details = self._checked(made) if is_of_plugin(type(self)) else made
        if not all(torch.isfinite(p).all() for p in model.parameters()):
            raise StatisticsError(
                f"the {self.name} head has weights too large for float32; scale the "
                "embeddings, e.g. to length 1"
            )
        report = {
            "rows": seen.rows,
            "classes": len(seen.classes),
            "left_out": seen.num_classes - len(seen.classes),
        }
        return Solved(model.eval().requires_grad_(False), {**report, **details})

    def _checked(self, made: Any) -> tuple[Model, dict]:
        """Check what `work_out` of a user's own form returned, and return it.

        Raises
        ------
        PluginError
            The result is not a model and a dict, the model holds NaN, or JSON cannot
            hold the dict.
        """
        whose = f"work_out of the closed form '{self.name}'"
        where = f"{whose}{where_of(self.work_out)}"
        if not isinstance(made, tuple) or len(made) != 2:
            raise PluginError(
                f"{where} must return two things, the model and a dict to report, but "
                f"returned {kind_of(made)}"
            )
        for part, wanted in zip(made, (Model, dict)):
            check_returned(whose, self.work_out, part, wanted)
        for name, parameter in made[0].named_parameters():
            if parameter.isnan().any():
                raise PluginError(f"{where} returned a model with NaN in '{name}'")
        for name, value in made[1].items():
            try:
                json.dumps({name: value}, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise PluginError(
                    f"{where} must report plain numbers and texts, but of {name!r}: "
                    f"{error}"
                ) from error
        return made


def _divide_inputs(model: Model, by: Tensor) -> None:
    """Change a model of rows divided by `by` [D] into a model of undivided rows."""
    weight = model.weight if isinstance(model, MixtureHead) else model.classifier.weight
    with torch.no_grad():
        weight.copy_(weight.double() / by)


def linear_head(weight: Tensor, bias: Tensor, seen: Seen) -> LinearHead:
    """Make the head with one weight vector and one bias for each class with samples.

    Classes without samples get the mean of the other classes' logits, less `BELOW`. The
    head takes embeddings as they are, not relative to `Seen.origin`.

    Parameters
    ----------
    weight : Tensor of shape (C', D)
    bias : Tensor of shape (C',)
    seen : Seen

    Raises
    ------
    ValueError
        A shape is wrong.
    """
    wanted = (len(seen.classes), seen.dim), (len(seen.classes),)
    if (weight.shape, bias.shape) != wanted:
        raise ValueError(
            f"linear_head: weights and biases must have the shapes {wanted[0]} and "
            f"{wanted[1]}, one row for each class with samples, but have "
            f"{tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    model = LinearHead(seen.dim, seen.num_classes)
    weight = weight - weight.mean(dim=0)
    bias = bias - bias.mean()
    with torch.no_grad():
        # The seen classes' logits of any x add up to zero, so the largest is at least
        # zero, and an unseen class never has it.
        model.classifier.weight.zero_()
        model.classifier.bias.fill_(-BELOW)
        model.classifier.weight[seen.classes] = weight.float()
        model.classifier.bias[seen.classes] = bias.float()
    return model
