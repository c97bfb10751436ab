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


@pytest.mark.slow
def test_it_shows_who_holds_what_unless_asked_to_be_quiet(tmp_path, capsys):
    short = ["federate.total_round_num", "1", "federate.client_num", "5"]
    words = ["--out", str(tmp_path / "out"), *short]
    assert main(["quickstart", *words]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Who holds which classes, seed 10")
    table = said.splitlines()[1:7]
    assert table[0].endswith("0 1 2 3 4 5 6 7 8 9")
    for line in table[1:]:
        _, _, _, held, _, classes, *bars = line.split()
        assert len(bars) == int(classes) == 10
        assert sum(bar != "\u00b7" for bar in bars) == int(held)
    assert (tmp_path / "out" / "curve.png").exists()
    assert main(["quickstart", "--quiet", *words]) == 0
    assert not capsys.readouterr().out
