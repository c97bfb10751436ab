"""All attacks on real runs: what fails for today's defaults, and what sums change."""

import pytest
from own_process import PATIENCE
from private_words import SUMS

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.audit.answers import (
    ATTACKS,
    LEVELS,
    Verdict,
    audit_run,
    self_audit,
)
from federatedscope_ggeur.extras.audit.base import Finding
from federatedscope_ggeur.extras.audit.transcript import recorded, truth_of

LDA = ["ggeur.closed_form", "lda", "ggeur.lda.shrinkage", 0.3]
OTHERS = ["ggeur.geometry", "pooled", "ggeur.prototypes", "others"]


def found(config, *settings, seconds=PATIENCE):
    run = Run(config("ggeur.space", "raw", *settings))
    findings = audit_run(recorded(run), truth_of(run), seconds)
    return {one.attack: one for one in findings}, findings


def fails(findings, level, adversary="curious"):
    return Verdict.of(findings, level, adversary).failed


@pytest.mark.slow
def test_the_default_fails_at_both_levels(config):
    by_name, findings = found(config, "federate.client_num", 6)
    assert list(by_name) == list(ATTACKS)
    # Level dp is for runs under differential privacy, see test_canaries.py.
    assert {one.level for one in findings} == {*LEVELS, ""} - {"dp"}
    assert by_name["A7"].passed is False
    assert by_name["A2"].passed is False
    assert fails(findings, "rows")
    assert fails(findings, "membership")


@pytest.mark.slow
def test_a_head_by_sums_passes_for_rows_and_fails_for_members(config):
    by_name, findings = found(config, *LDA, *SUMS)
    assert not fails(findings, "rows")
    assert fails(findings, "membership") == ("A10",)
    nothing = {name for name, one in by_name.items() if one.tried is None}
    assert {"A1", "A2", "A3", "A4", "A6", "A7", "A8", "A9"} <= nothing


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [LDA, ["ggeur.closed_form", "ncm"], [*LDA, "ggeur.init", "closed_form", *OTHERS]],
    ids=["lda", "ncm", "lda and ggeur"],
)
def test_near_owners_learn_nothing(config, settings):
    alpha = ["data.splitter_args", "[{'alpha': 0.05}]", "federate.client_num", 9]
    by_name, findings = found(config, *settings, *SUMS, *alpha)
    assert not {"S1", "S2", "S3", "S4"} & set(fails(findings, "rows"))
    assert all("no client owns" not in by_name[name].note for name in ("S1", "S2"))
    if settings is LDA:
        assert by_name["S2"].passed is True


@pytest.mark.slow
def test_a_head_trained_from_sums_gives_rows_of_small_classes_away(config):
    """None of them to 0.99, but nearly each is the nearest of all known rows."""
    alpha = ["data.splitter_args", "[{'alpha': 0.05}]", "federate.client_num", 9]
    by_name, findings = found(config, *OTHERS, *SUMS, *alpha)
    one = by_name["A4"]
    assert fails(findings, "rows") == ("A4",)
    assert one.chance < one.limit < one.value <= one.tried
    assert "median rank of its nearest row 1 of" in one.note
    assert by_name["A5"].value > 0.7


def test_of_a_client_alone(config):
    run = Run(config("federate.client_num", 6, "ggeur.space", "raw"))
    seen, truth = recorded(run), truth_of(run)
    number = min(truth.clients)
    own = {one.attack: one for one in self_audit(seen, truth, number, 5)}
    assert list(own) == ["A1", "A1b", "A2", "A4", "A7"]
    assert own["A7"].figure.endswith("of 1")


OUTCOMES = [
    ([True, False], 1, "FAILED"),
    ([True, None], 0, "passed"),
    ([None], 0, "undecided"),
    ([None], 5, "undecided"),
    ([None], None, "nothing to attack"),
    ([], None, "nothing to attack"),
]


@pytest.mark.parametrize(("passed", "tried", "outcome"), OUTCOMES)
def test_a_verdict_claims_nothing_that_was_not_tried(passed, tried, outcome):
    findings = [
        Finding("A", "x", "", level="rows", passed=one, tried=tried) for one in passed
    ]
    other = Finding("B", "x", "", level="rows", passed=False, adversary="lying")
    found = Verdict.of([*findings, other], "rows", "curious")
    assert found.outcome == outcome
    assert Verdict.of([*findings, other], "rows", "lying").failed == ("B",)
    assert Verdict.of(findings, "membership", "curious").outcome == "nothing to attack"
