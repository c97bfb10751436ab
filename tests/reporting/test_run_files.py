import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from federatedscope_ggeur import files
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.reporting import new_run_folder, write_run
from federatedscope_ggeur.reporting import run as folders


@pytest.mark.parametrize(
    ("data", "raw"), [(b"\x00\r\n", b"\x00\r\n"), ("ä\n", b"\xc3\xa4\n"), ("", b"")]
)
def test_writes_and_replaces_exactly_these_bytes(tmp_path, data, raw):
    path = tmp_path / "file"
    path.write_text("before")
    write_atomically(path, data)
    assert path.read_bytes() == raw
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    def fail(*_):
        raise OSError("disk full")

    path = tmp_path / "file"
    path.write_text("before")
    monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(ConfigError, match=rf"{re.escape(str(path))}.*disk full"):
        write_atomically(path, "after")
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_file_is_as_readable_as_any_other(tmp_path):
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "atomic", "")
    modes = {stat.S_IMODE(os.stat(tmp_path / n).st_mode) for n in ("plain", "atomic")}
    assert len(modes) == 1


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


def test_write_run_writes_three_files(tmp_path, make_results):
    write_run(tmp_path, make_results())
    write_run(tmp_path, make_results())
    assert sorted(os.listdir(tmp_path)) == ["curve.png", "metrics.csv", "results.json"]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_write_run_writes_nothing_when_results_cannot_be_written(
    tmp_path, make_results
):
    with pytest.raises(DataError, match=r"results\.config\.lr"):
        write_run(tmp_path, make_results(config={"lr": float("inf")}))
    assert os.listdir(tmp_path) == []
