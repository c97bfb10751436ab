"""``ggeur report``: which files it leaves where, and wrong words."""

import csv

import pytest
from own_process import python
from written_runs import made, noisy, write

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.studies.comparison import Measure
from federatedscope_ggeur.extras.studies.comparison.folder import (
    default_folder,
    write_report,
)
from federatedscope_ggeur.reporting.records import PooledRows

TABLES = ["report.html", "table.csv", "table.md", "table.tex"]
PICTURES = ["accuracy_bytes", "convergence"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two rows of two seeds."""
    folder = tmp_path_factory.mktemp("of_report") / "runs"
    for number, name in enumerate("ab"):
        for seed in (1, 2):
            results = made(noisy(0.5 + number / 5, seed), seed, {"name": name})
            write(folder / f"{name}{seed}", results)
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_files_and_what_is_printed(runs, tmp_path, ggeur):
    out = tmp_path / "out"
    words = ["--out", out, "--format", "pdf,png,pdf", "--width", "one"]
    printed, err = ggeur("report", runs, *words)
    assert err == ""
    files = [f"{name}.{form}" for name in PICTURES for form in ("pdf", "png")]
    expected = sorted([*TABLES, *files])
    assert names(out) == expected
    *table, last = printed.strip().split("\n\n")
    assert "Accuracy: office" in table[0]
    assert sorted(last.splitlines()) == [str(out / name) for name in expected]
    lines = list(csv.DictReader((out / "table.csv").open(encoding="utf-8")))
    assert {line["row"] for line in lines} == {"name a", "name b"}
    assert (out / "table.md").read_text(encoding="utf-8").startswith("## office")


def test_by_default_it_is_below_the_folder_and_never_the_same(tmp_path):
    assert default_folder(tmp_path) == tmp_path / "report"
    (tmp_path / "report").mkdir()
    (tmp_path / "report_2").write_text("")
    assert default_folder(tmp_path) == tmp_path / "report_3"
    assert default_folder(tmp_path / "results.json") == tmp_path / "report_3"


def test_nothing_is_overwritten(runs, tmp_path, ggeur):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    words = ["--out", tmp_path / "out", "--format", "svg"]
    out, err = ggeur("report", runs, *words, status=1)
    assert out == ""
    assert "exists already; nothing was written" in err
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["mine.txt"]


def test_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "out").mkdir()
    write_report(tmp_path / "out", {"a.txt": b"a"})
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "a.txt").read_bytes() == b"a"


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write the report into"):
        write_report(tmp_path / "file" / "report", {"a.txt": b"a"})
    with pytest.raises(ConfigError, match="cannot write"):
        write_report(tmp_path / "out", {"a.txt": b"a", "no/such/folder": b"b"})
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("option", "value"), [("--format", "gif"), ("--target", "nan"), ("--baseline", "x")]
)
def test_a_users_mistakes_are_named(runs, tmp_path, ggeur, option, value):
    words = ["--out", tmp_path / "out", option, value]
    out, err = ggeur("report", runs, *words, status=1)
    assert out == ""
    assert err.startswith("error: ")
    assert option.strip("-") in err
    assert names(tmp_path) == []


def test_a_report_in_a_paper_s_style_leaves_a_page_to_print(runs, tmp_path):
    words = ["--out", str(tmp_path / "r"), "--style", "avg", "--format", "pdf"]
    assert main(["report", str(runs), *words, "--width", "one"]) == 0
    page = (tmp_path / "r" / "page.tex").read_text(encoding="ascii")
    assert r"\input{table.tex}" in page
    assert page.count(r"\includegraphics") == len(PICTURES)


# ``ggeur compare``: real runs in the terminal, and wrong words.


NO_TORCH = """\
import sys
from federatedscope_ggeur.cli import main
status = main(["compare", sys.argv[1]])
assert "torch" not in sys.modules
sys.exit(status)
"""


@pytest.mark.slow
def test_it_writes_nothing_and_needs_no_torch(tmp_path):
    write(tmp_path / "a", made(noisy(0.5, 1), 1))
    before = sorted(tmp_path.rglob("*"))
    done = python("-c", NO_TORCH, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "AVG" in done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_the_first_run_named_is_the_baseline(runs, ggeur):
    for words, baseline in (([], "b"), (["--baseline", "name a"], "a")):
        out = ggeur("compare", runs / "b1", runs / "a1", *words).out
        assert f"Differences to name {baseline}, seed by seed" in out


# Bytes of rows that clients pool.


def test_pooled_rows_count_as_bytes_of_their_clients():
    pooled = made([{"x": 0.5}], 1, pooled=PooledRows(6, 90, 4000))
    assert Measure("bytes_up").of(pooled) == pooled.final.bytes_up / 6
