"""One setting: its type, default, rule; and settings that do not go together.

A rule returns the problem of a value, or "" for none. It may have an attribute `read`,
which converts a valid value of a config for the part.

Settings of a run stand in a `Section`, whose fields are made by `key`. A part reads
them as attributes: ``run.of(SomeSection).field``.

A part has a function ``objections(run)``. `run` holds the facts of a run. The function
yields an `Objection` for each reason. If an `Objection` cannot express the reason, the
function yields a `Problem`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Union

from federatedscope_ggeur.errors import did_you_mean, setting, shown

NOT_SET = -1.0
#: No sensible rate, weight, temperature or number of bytes is larger. float32 can hold
#: the square of such a number, and the product of two.
LARGEST = 1e15
#: Longest name or path. One message may repeat it several times.
MOST_CHARACTERS = 1000
Rule = Callable[[object], str]


def rule_of(problem: str, fits: Callable) -> Rule:
    """The rule that accepts a value if `fits` does, and else reports `problem`."""
    return lambda value: "" if fits(value) else f"{problem}, got {shown(value)}"


def whole(
    minimum: int, not_set_allowed: bool = False, maximum: int = 2**31 - 1
) -> Rule:
    """The rule that a value is a whole number from `minimum` to `maximum`."""

    def fits(value) -> bool:
        return value == value // 1 and minimum <= value <= maximum

    wanted = f"must be a whole number in {minimum}..{maximum}"
    return _number(wanted, fits, int, not_set_allowed)


def fraction(not_set_allowed: bool = False) -> Rule:
    """The rule that a value is at least 0 and at most 1."""
    wanted = "must lie in 0..1"
    return _number(wanted, lambda value: 0 <= value <= 1, float, not_set_allowed)


def _number(wanted: str, fits: Callable, read: Callable, not_set_allowed: bool) -> Rule:
    def is_unset(value) -> bool:
        return not_set_allowed and value == NOT_SET

    wanted += " (or -1, not set)" if not_set_allowed else ""
    rule = rule_of(
        wanted, lambda value: is_unset(value) or (is_number(value) and fits(value))
    )
    rule.read = lambda value: None if is_unset(value) else read(value)  # type: ignore[attr-defined]
    rule.takes_not_set = not_set_allowed  # type: ignore[attr-defined]
    return rule


def is_number(value) -> bool:
    """Whether `value` is an int or a float. True and False do not count."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number_problem(value: object) -> str:
    """The problem of a number in any setting, beside the setting's own rule; "" if
    none.

    A number must be finite, and so small that results in float32 do not overflow.
    """
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(number_problem, value)), "")
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be finite, got {shown(value)}"
    if isinstance(value, (int, float)) and not -LARGEST <= value <= LARGEST:
        return f"must lie in -{LARGEST:g}..{LARGEST:g}, got {shown(value)}"
    return ""


def one_of(*choices) -> Rule:
    """The rule that a value is one of `choices`."""

    def rule(value) -> str:
        if value in choices:
            return ""
        known = ", ".join(map(str, choices))
        near = did_you_mean(value, choices)
        return f"must be one of {known}; got {shown(value)}{near}"

    rule.choices = choices  # type: ignore[attr-defined]
    return rule


def names(what: str) -> Rule:
    """The rule that a value is a list of texts. `what` names them for messages."""

    def fits(value) -> bool:
        is_list = isinstance(value, (list, tuple))
        return is_list and all(isinstance(v, str) for v in value)

    return rule_of(f"must be a list of {what}", fits)


def below(limit: float) -> Rule:
    """The rule that a value is at least 0 and below `limit`."""
    problem = f"must be at least 0 and below {limit}"
    return rule_of(problem, lambda value: is_number(value) and 0 <= value < limit)


def positive_up_to(most: float, not_set_allowed: bool = False) -> Rule:
    """The rule that a value is above 0 and at most `most`."""
    wanted = f"must be above 0 and at most {most:g}"
    return _number(wanted, lambda value: 0 < value <= most, float, not_set_allowed)


text = rule_of(
    f"must be a text of at most {MOST_CHARACTERS} characters",
    lambda value: isinstance(value, str) and len(value) <= MOST_CHARACTERS,
)
positive = positive_up_to(LARGEST)
positive_or_not_set = positive_up_to(LARGEST, not_set_allowed=True)
positive_share = positive_up_to(1)


def not_negative_up_to(most: float) -> Rule:
    """The rule that a value is 0 or more and at most `most`."""
    return rule_of(
        f"must lie in 0..{most:g}",
        lambda value: is_number(value) and 0 <= value <= most,
    )


not_negative = not_negative_up_to(LARGEST)
steps = rule_of(
    "must be [], [1], [2] or [1, 2]",
    lambda value: (
        isinstance(value, (list, tuple)) and list(value) in ([], [1], [2], [1, 2])
    ),
)
#: The rule of a number of rows or steps, which bounds the time and memory of a run.
amount = whole(1, maximum=10**6)
#: The rule of a mini-batch, of at least two rows because of BatchNorm.
batch_rows = whole(2, maximum=10**6)
layer_width = whole(1, maximum=2**16)


@dataclass(frozen=True)
class Key:
    """One setting of a run, or of a part of the run.

    Attributes
    ----------
    name : str
        For a part's own setting, its name within the part: ``"mu"`` of MOON is the YAML
        key ``ggeur.moon.mu``. For a setting of the run, the YAML key without
        ``ggeur.``.
    default : object
        As the part reads it. None means not set, which a config writes as -1 if the
        rule allows it. Otherwise None means an optional key in a section that takes new
        keys; if the key is missing, the part decides.
    meaning : str
        What the setting does, for a person, in a line or two.
    rule : Rule
    shared : bool
        Whether every process of a federation must have the same value. A part's own
        settings must always be the same.
    prepares_rows : bool
        Whether rows are prepared by it, so that a head needs to know its value.
    in_site_folder : bool
        Whether the value names a folder that each site keeps. A relative path lies in
        the site's own folder.
    """

    name: str
    default: object
    meaning: str
    rule: Rule
    shared: bool = False
    prepares_rows: bool = False
    in_site_folder: bool = False

    def __post_init__(self):
        object.__setattr__(self, "default", self.read(self.default))

    def read(self, value: object) -> object:
        """Convert a config's value for the part that uses it.

        A whole number becomes an int, and a list a tuple, if the default is one. -1
        becomes None, if it means not set. A value that the rule refuses stays as it is.
        """
        if read := getattr(self.rule, "read", None):
            return value if self.rule(value) else read(value)
        if isinstance(value, list) and isinstance(self.default, tuple):
            return tuple(value)
        return value

    @cached_property
    def in_config(self) -> object:
        """The default in the words of a config.

        Whole numbers are floats there. If the default were an int, FederatedScope would
        cut 2.5 to 2 before any check could see it.
        """
        if self.default is None and getattr(self.rule, "takes_not_set", False):
            return NOT_SET
        if type(self.default) is int:
            return float(self.default)
        return list(self.default) if isinstance(self.default, tuple) else self.default

    @property
    def field(self) -> str:
        """The name of a run's setting in the rooms that see no config."""
        return self.name.removeprefix("privacy.")


def keys_of_parts(parts: Mapping[str, Sequence[Key]]) -> tuple[Key, ...]:
    """The keys of parts, by their full names. `parts` has those of each part's name."""
    return tuple(
        replace(key, name=f"{name}.{key.name}")
        for name, keys in parts.items()
        for key in keys
    )


def flatten(
    content: Mapping, prefix: str = "", keep_empty: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield each dotted key with its value. Empty sections count only with
    `keep_empty`."""
    for key, value in content.items():
        if isinstance(value, Mapping) and (value or not keep_empty):
            yield from flatten(value, f"{prefix}{key}.", keep_empty)
        else:
            yield f"{prefix}{key}", value


#: The name of a field, and the problem with its value.
Problem = tuple[str, str]


@dataclass(frozen=True)
class Objection:
    """The value of one setting restricts other settings.

    Attributes
    ----------
    chosen : str
        The setting that restricts the others. It belongs to the part that objects.
    allowed : mapping from field to values
        The values that each other setting may have. [] allows none and names none. A
        setting of an extra that is not there counts as allowed.
    why : str
        The reason. It ends a sentence that names both settings.
    """

    chosen: str
    allowed: Mapping[str, Any]
    why: str

    def problems(self, run: Any) -> Iterator[Problem]:
        """Yield each field of `allowed` whose value in `run` is not allowed, with the
        problem."""
        for field, values in self.allowed.items():
            if field not in run:
                continue
            value, allowed = _as_list(run[field]), [*map(_as_list, values)]
            if value in allowed:
                continue
            must = f"must be {' or '.join(map(_plain, allowed))}"
            wrong = must if allowed else f"cannot be {_plain(value)}"
            beside = f"{setting(self.chosen)}: {_plain(run[self.chosen])}"
            yield field, f"{wrong} with {beside}, {self.why}"


def _as_list(value: object) -> object:
    """A list for a tuple; other values as they are."""
    return list(value) if isinstance(value, tuple) else value


Objections = Iterable[Union[Objection, Problem]]


def problems_of(objections: Objections, run: Any, wrong: Collection) -> Iterator[str]:
    """Yield the problems that `objections` find in `run`, each as ``"<key>:
    <problem>"``.

    An objection is skipped if `wrong` holds the key of its chosen setting, because that
    value is already refused.
    """
    for objection in objections:
        problems: Iterable[Problem] = ()
        if not isinstance(objection, Objection):
            problems = [objection]
        elif setting(objection.chosen) not in wrong:
            problems = objection.problems(run)
        for field, problem in problems:
            yield f"{setting(field)}: {problem}"


def _plain(value: object) -> str:
    """A setting's value as a YAML file shows it."""
    if value is None:
        return "-1"
    value = _as_list(value)
    return value if isinstance(value, str) and value else repr(value)
