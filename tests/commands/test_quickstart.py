"""The command `quickstart`; tests/test_readme.py runs it as a user does."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.commands.study import STUDY
from federatedscope_ggeur.studies.study_file import load_study


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


def test_its_study_has_the_rows_of_a_newcomer_in_the_quickstarts_own_setting():
    plan = load_study(STUDY)
    (axis,) = plan.named_axes()
    assert axis.points == [
        "each client alone",
        "FedAvg",
        "GGEUR",
        "one upload",
        "all rows in one place",
    ]
    assert len(plan.seeds) > 2, "enough for a standard error"
    assert not any(cell.tune for cell in plan.cells())
    ggeur = [c for c in plan.cells() if c.labels[axis.name] == "GGEUR"]
    assert not any(cell.settings for cell in ggeur), "the quickstart as it stands"
