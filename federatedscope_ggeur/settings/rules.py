"""What values a key takes: each rule says what is wrong with a value, "" if nothing.

A rule may have an attribute `read`: how a value that passed it is given to a part.
"""

from __future__ import annotations

import math
from collections.abc import Callable

NOT_SET = -1.0
Rule = Callable[[object], str]


def whole(
    minimum: int, not_set_allowed: bool = False, maximum: int = 2**31 - 1
) -> Rule:
    """A whole number. Its default is a float: FS cuts 2.5 to 2 for an int default,
    before any check can see it."""

    def rule(value) -> str:
        if not_set_allowed and value == NOT_SET:
            return ""
        if is_number(value) and value == value // 1 and minimum <= value <= maximum:
            return ""
        unset = " (or -1, not set)" if not_set_allowed else ""
        return f"must be a whole number in {minimum}..{maximum}{unset}, got {value!r}"

    rule.read = lambda value: _unless_unset(value, not_set_allowed, int)  # type: ignore[attr-defined]
    return rule


def is_number(value) -> bool:
    """Whether `value` is a real number, which True is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _unless_unset(value, not_set_allowed: bool, read: Callable):
    return None if not_set_allowed and value == NOT_SET else read(value)


def one_of(*choices) -> Rule:
    """The rule that a value is one of `choices`."""

    def rule(value) -> str:
        if value in choices:
            return ""
        return f"must be one of {', '.join(map(str, choices))}; got {value!r}"

    return rule


def steps(value) -> str:
    if isinstance(value, (list, tuple)) and list(value) in ([], [1], [2], [1, 2]):
        return ""
    return f"must be [], [1], [2] or [1, 2], got {value!r}"


def names(what: str) -> Rule:
    """The rule that a value is a list of texts, `what` for a person."""

    def rule(value) -> str:
        if isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
            return ""
        return f"must be a list of {what}, got {value!r}"

    return rule


def text(value) -> str:
    return "" if isinstance(value, str) else f"must be a text, got {value!r}"


def positive(value) -> str:
    fits = is_number(value) and 0 < value < math.inf
    return "" if fits else f"must be above 0 and finite, got {value!r}"


def not_negative(value) -> str:
    fits = is_number(value) and 0 <= value < math.inf
    return "" if fits else f"must be finite and not negative, got {value!r}"


def fraction(not_set_allowed: bool = False) -> Rule:
    """The rule that a value lies in 0..1."""

    def rule(value) -> str:
        if not_set_allowed and value == NOT_SET:
            return ""
        if is_number(value) and 0 <= value <= 1:
            return ""
        unset = " (or -1, not set)" if not_set_allowed else ""
        return f"must lie in 0..1{unset}, got {value!r}"

    rule.read = lambda value: _unless_unset(value, not_set_allowed, float)  # type: ignore[attr-defined]
    return rule


def below(limit: float) -> Rule:
    """The rule that a value is at least 0 and below `limit`."""

    def rule(value) -> str:
        if is_number(value) and 0 <= value < limit:
            return ""
        return f"must be at least 0 and below {limit}, got {value!r}"

    return rule
