"""Which runs are found below folders, and what is said of those that cannot be read."""

from __future__ import annotations

import json

import pytest
from written_runs import made, noisy, write

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.extras.studies.comparison.runs import find_runs
from federatedscope_ggeur.extras.studies.study import Cell, Study, to_text


def run(seed=1, **changes):
    return made(noisy(0.5, seed), seed, **changes)


def test_runs_are_found_in_order_each_once(tmp_path):
    for name in ("b/two", "b/one", "a"):
        write(tmp_path / name, run())
    found = find_runs([tmp_path / "b", tmp_path, tmp_path / "a" / "results.json"])
    assert [r.folder.name for r in found.runs] == ["one", "two", "a"]
    assert (found.studies, found.notes) == ([], [])


def test_what_tuning_tried_and_cells_in_progress_are_passed_over(tmp_path):
    write(tmp_path / "study" / "tuning" / "row", run())
    write(tmp_path / "study" / "seed_1.part", run())
    write(tmp_path / "study" / "seed_2", run())
    assert [r.folder.name for r in find_runs([tmp_path]).runs] == ["seed_2"]


def test_the_study_of_a_cell_is_found_above_the_folder_named(tmp_path):
    (tmp_path / "study.json").write_text(to_text(Study("mine", "Mine", [], [1])))
    # Another one, which the cell is not of.
    (tmp_path / "row").mkdir()
    (tmp_path / "row" / "study.json").write_text(to_text(Study("x", "X", [], [1])))
    write(tmp_path / "row" / "seed_1", run(), Cell("mine", {"method": "a"}, 1))
    found = find_runs([tmp_path / "row" / "seed_1"])
    assert "mine" in [study.name for study in found.studies]
    assert found.runs[0].cell.labels == {"method": "a"}


def test_unfinished_runs_are_counted(tmp_path):
    write(tmp_path / "a", run())
    for name, status in (("b", "failed"), ("c", "interrupted")):
        write(tmp_path / name, run(status=status))
    found = find_runs([tmp_path])
    assert len(found.runs) == 1
    assert found.notes == ["left out: 2 runs that were interrupted or failed"]


def test_without_runs_it_says_what_was_looked_for(tmp_path):
    with pytest.raises(DataError, match=r"no finished run in .*results\.json"):
        find_runs([tmp_path])
    write(tmp_path / "b", run(status="failed"))
    with pytest.raises(DataError, match="1 run that was interrupted or failed"):
        find_runs([tmp_path])
    with pytest.raises(DataError, match="is neither a folder nor a file"):
        find_runs([tmp_path / "nowhere"])


@pytest.mark.parametrize("text", ["", '{"schema_version": 11, "engine"'])
def test_a_file_of_something_else_is_named(tmp_path, text):
    write(tmp_path / "a", run())
    broken = write(tmp_path / "b", run()) / "results.json"
    broken.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="these results cannot be read") as error:
        find_runs([tmp_path])
    assert str(broken) in str(error.value)
    assert len(str(error.value).splitlines()) == 2


def test_all_of_them_are_listed_with_the_schema_that_is_read(tmp_path):
    for number in range(15):
        folder = write(tmp_path / f"run_{number:02d}", run())
        raw = json.loads((folder / "results.json").read_text())
        raw["schema_version"] = 9
        (folder / "results.json").write_text(json.dumps(raw))
    (tmp_path / "run_00" / "results.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="and 5 more") as error:
        find_runs([tmp_path])
    lines = str(error.value).splitlines()[1:]
    assert "cannot be read" in lines[0]
    assert all("reads 11, found 9" in line for line in lines[1:10])


def test_a_broken_cell_is_named(tmp_path):
    folder = write(tmp_path / "a", run())
    (folder / "cell.json").write_text("{}")
    with pytest.raises(DataError, match=r"cell\.json"):
        find_runs([tmp_path])
