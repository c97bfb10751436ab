"""The folder of a run and the files in it."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.reporting import new_run_folder, write_run
from federatedscope_ggeur.reporting import run as folders


def test_run_folders_follow_federatedscope_and_are_never_reused(tmp_path):
    outdir = tmp_path / "a" / "b"
    first = new_run_folder(outdir, "exp")
    assert first == outdir / "exp"
    (first / "results.json").write_text("kept")
    # Far faster than one a second, so several share a time stamp.
    others = [new_run_folder(outdir, "exp") for _ in range(5)]
    assert len({first, *others}) == 6
    for folder in others:
        assert folder.parent == first
        assert re.fullmatch(r"sub_exp_\d{14}(_\d+)?", folder.name)
        assert not os.listdir(folder)
    assert (first / "results.json").read_text() == "kept"


def test_runs_that_start_together_get_different_folders(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: new_run_folder(tmp_path, "exp"), range(32)))
    assert len(set(made)) == 32


def test_same_second_gets_a_number(tmp_path, monkeypatch):
    class Clock(folders.datetime):
        @classmethod
        def now(cls):
            return cls(2024, 5, 6, 7, 8, 9)

    monkeypatch.setattr(folders, "datetime", Clock)
    names = [new_run_folder(tmp_path, "exp").name for _ in range(4)]
    stem = "sub_exp_20240506070809"
    assert names == ["exp", stem, f"{stem}_2", f"{stem}_3"]


@pytest.mark.parametrize("blocked", ["out", "out/exp"])
def test_a_file_in_the_way_is_a_named_error(tmp_path, blocked):
    path = tmp_path / blocked
    path.parent.mkdir(exist_ok=True)
    path.write_text("kept")
    problem = rf"'{re.escape(str(path))}' is not a folder.*outdir"
    with pytest.raises(ConfigError, match=problem):
        new_run_folder(tmp_path / "out", "exp")
    assert path.read_text() == "kept"


@pytest.mark.skipif(os.name != "posix", reason="/dev/null is POSIX")
def test_a_device_in_the_way_is_named(tmp_path):
    with pytest.raises(ConfigError, match="'/dev/null' is not a folder"):
        new_run_folder("/dev/null", "exp")


def test_write_run_names_what_cannot_be_written(tmp_path, make_results):
    (tmp_path / "metrics.csv").mkdir()
    with pytest.raises(ConfigError, match=r"cannot write .*metrics\.csv"):
        write_run(tmp_path, make_results())


@pytest.mark.slow
def test_write_run_writes_three_files(tmp_path, make_results):
    write_run(tmp_path, make_results())
    write_run(tmp_path, make_results())
    assert sorted(os.listdir(tmp_path)) == ["curve.png", "metrics.csv", "results.json"]


def test_write_run_writes_nothing_when_results_cannot_be_written(
    tmp_path, make_results
):
    with pytest.raises(DataError, match=r"results\.config\.lr"):
        write_run(tmp_path, make_results(config={"lr": float("inf")}))
    assert os.listdir(tmp_path) == []
