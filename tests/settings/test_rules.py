"""Rules: what each lets through, what it says of the rest, how a value is read.

Tests of settings/keys.py, too.
"""

import math
import re

import pytest

from federatedscope_ggeur.settings import (
    NOT_SET,
    Key,
    Objection,
    below,
    flatten,
    fraction,
    names,
    not_negative,
    one_of,
    positive,
    positive_up_to,
    problems_of,
    steps,
    text,
    whole,
)
from federatedscope_ggeur.settings.keys import number_problem

NO_NUMBERS = (True, "1", None, [1], {}, math.nan)
RULES = {
    "whole": (whole(2), (2, 2.0, 2**31 - 1), (1, 2.5, 2**31, math.inf, *NO_NUMBERS)),
    "whole at most": (whole(1, maximum=4), (1, 4.0), (0, 5, -1, *NO_NUMBERS)),
    "whole or not set": (whole(1, True), (1, NOT_SET, -1), (0, -2, *NO_NUMBERS)),
    "fraction": (fraction(), (0, 0.5, 1), (-0.1, 1.1, -1, *NO_NUMBERS)),
    "fraction or not set": (fraction(True), (0, 1, NOT_SET), (-0.5, 2, *NO_NUMBERS)),
    "one of": (one_of("a", "b"), ("a", "b"), ("c", "", None, 1)),
    "names": (names("domains"), ([], ["a", "b"], ("a",)), ("a", [1], None, ["a", 2])),
    "below": (below(1), (0, 0.99), (1, -0.1, math.inf, *NO_NUMBERS)),
    "text": (text, ("", "a", "x" * 1000), (1, None, ["a"])),
    "positive": (positive, (1e-300, 5, 1e15), (0, -1, 2e15, math.inf, *NO_NUMBERS)),
    "positive up to": (positive_up_to(9.0), (1, 9), (0, 9.5, -1, *NO_NUMBERS)),
    "positive or not set": (positive_up_to(9.0, True), (9, -1), (0, 10, *NO_NUMBERS)),
    "not negative": (not_negative, (0, 1e15), (-1e-300, 2e15, math.inf, *NO_NUMBERS)),
    "steps": (steps, ([], [1], [2], [1, 2], (1, 2)), ([2, 1], [3], [1, 1], 1, None)),
}
FITS = [(rule, value) for rule, fitting, _ in RULES.values() for value in fitting]
MISFITS = [(rule, value) for rule, _, others in RULES.values() for value in others]


@pytest.mark.parametrize(("rule", "value"), FITS)
def test_what_fits_has_no_problem(rule, value):
    assert rule(value) == ""


@pytest.mark.parametrize(("rule", "value"), MISFITS)
def test_what_does_not_is_told_with_the_value(rule, value):
    problem = rule(value)
    assert problem.startswith("must ")
    assert problem.endswith(f"got {value!r}")


def test_a_text_that_no_message_could_hold():
    assert "must be a text of at most 1000 characters" in text("x" * 1001)


def test_values_are_read_by_the_rule():
    for rule, value, read in (
        (whole(1), 3.0, 3),
        (whole(1, True), NOT_SET, None),
        (whole(0, True), 0.0, 0),
        (fraction(), 1, 1.0),
        (fraction(True), NOT_SET, None),
        (positive, 2.5, 2.5),
        (text, "a", "a"),
        # Refused where settings are checked, and left as it is here.
        (whole(1), 2.5, 2.5),
        (whole(1), "three", "three"),
    ):
        found = Key("name", 1.0, "What it means.", rule).read(value)
        assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    "value", [math.inf, [1.0, math.nan], {"a": 1, "b": [2.0, -math.inf]}, (1e39, 1)]
)
def test_numbers_that_no_setting_takes_are_found_within_values(value):
    assert re.match("must (be finite|lie in)", number_problem(value))
    assert number_problem([1.0, {"a": 2}, "text", True]) == ""


NESTED = {"a": {"b": 1, "c": {"d": []}}, "e": {}}


def test_keys_have_dots():
    assert dict(flatten(NESTED)) == {"a.b": 1, "a.c.d": []}
    assert list(flatten({"a": {"b": {}}})) == []


def test_empty_sections_only_if_asked():
    found = dict(flatten(NESTED, keep_empty=True))
    assert found == {"a.b": 1, "a.c.d": [], "e": {}}


RUN = {"totals": "statistics", "kept": "best", "parts": [1], "most": None, "width": 8}


def said(*objections, wrong=()):
    return list(problems_of(objections, RUN, wrong))


def test_what_is_not_allowed_is_said_with_the_reason():
    allowed = {"kept": ["trained"], "parts": [[], [1]], "width": [0]}
    assert said(Objection("totals", allowed, "which sums")) == [
        "kept: must be trained with totals: statistics, which sums",
        "width: must be 0 with totals: statistics, which sums",
    ]


def test_all_that_is_allowed_is_named_and_no_value_need_be():
    reason = "for a reason"
    assert said(Objection("most", {"kept": ["a", ""]}, reason)) == [
        "kept: must be a or '' with most: -1, for a reason"
    ]
    assert said(Objection("totals", {"width": []}, reason)) == [
        "width: cannot be 8 with totals: statistics, for a reason"
    ]


def test_a_problem_may_have_words_of_its_own():
    assert said(("kept", "takes a second head")) == ["kept: takes a second head"]


def test_nothing_is_said_because_of_a_setting_that_is_wrong_itself():
    objection = Objection("totals", {"kept": ["trained"]}, "which sums")
    assert said(objection, wrong={"totals"}) == []
    assert said(objection, wrong={"kept"}) == said(objection)
