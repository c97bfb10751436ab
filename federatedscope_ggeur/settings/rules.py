"""Rules for the values of keys. A rule returns the problem of a value, or "" for none.

A rule may have an attribute `read`, which converts a valid value for the part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from federatedscope_ggeur.errors import did_you_mean, shown

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
    """The rule that a value is a whole number from `minimum` to `maximum`.

    Give the key of this rule a float as default. If the default is an int, FS cuts 2.5
    to 2 before any check can see it.
    """

    def fits(value) -> bool:
        return is_number(value) and value == value // 1 and minimum <= value <= maximum

    wanted = f"must be a whole number in {minimum}..{maximum}"
    return _number(wanted, fits, int, not_set_allowed)


def fraction(not_set_allowed: bool = False) -> Rule:
    """The rule that a value is at least 0 and at most 1."""

    def fits(value) -> bool:
        return is_number(value) and 0 <= value <= 1

    return _number("must lie in 0..1", fits, float, not_set_allowed)


def _number(wanted: str, fits: Callable, read: Callable, not_set_allowed: bool) -> Rule:
    def is_unset(value) -> bool:
        return not_set_allowed and value == NOT_SET

    wanted += " (or -1, not set)" if not_set_allowed else ""
    rule = rule_of(wanted, lambda value: is_unset(value) or fits(value))
    rule.read = lambda value: None if is_unset(value) else read(value)  # type: ignore[attr-defined]
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

    def fits(value) -> bool:
        return is_number(value) and 0 < value <= most

    wanted = f"must be above 0 and at most {most:g}"
    return _number(wanted, fits, float, not_set_allowed)


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
