"""Files of studies that somebody made to do harm are named; long ones are compared."""

import pytest
from written_runs import check_growth, made, noisy, write

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.extras.studies.study import CELL_FILE, STUDY_FILE

HONEST = made(noisy(0.8, 0, 3), 0, closed_form={"Art": 0.5, "Clipart": 0.25})
DIGITS = "9" * 6000


@pytest.mark.parametrize("name", [STUDY_FILE, CELL_FILE])
@pytest.mark.parametrize("value", [DIGITS, "[" * 100_000, "NaN", "[]", '{"x": 1}'])
def test_what_is_wrong_in_a_study_is_named(tmp_path, name, value, capsys):
    write(tmp_path / "run", HONEST)
    folder = tmp_path / "run" if name == CELL_FILE else tmp_path
    (folder / name).write_text(f'{{"version": {value}}}')
    assert main(["compare", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert name in error
    assert len(error.splitlines()) <= 3


def test_comparing_grows_with_the_rounds_and_no_faster(tmp_path):
    check_growth(lambda place: main(["compare", place]), tmp_path)
