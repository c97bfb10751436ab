"""Tests of settings/objections.py."""

from federatedscope_ggeur.settings import Objection, problems_of

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
