"""The command `quickstart`; tests/test_readme.py runs it as a user does."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.extras.studies.quickstart import STUDY
from federatedscope_ggeur.extras.studies.study_file import load_study


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", "0"], "--workers: must be at least 1, got 0"),
        (["ggeur.steps"], "'ggeur.steps' has no value"),
    ],
)
def test_what_is_wrong_is_one_message(capsys, words, message):
    assert main(["quickstart", *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error


def test_its_study_has_the_rows_of_a_newcomer_on_seeds_that_nobody_looked_at():
    plan = load_study(STUDY)
    (axis,) = plan.named_axes()
    assert axis.points == [
        "each client alone",
        "FedAvg",
        "GGEUR",
        "one upload",
        "all rows in one place",
    ]
    assert len(plan.seeds) == 10
    assert not set(plan.seeds) & set(range(5)), "the setting was chosen on these"
    assert not any(cell.tune for cell in plan.cells())
