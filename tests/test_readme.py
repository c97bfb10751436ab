"""The README and the first pages of the docs: short, and true of what they show."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import fmean

import pytest
from documented import ROOT, blocks
from own_process import program, python

from federatedscope_ggeur import run
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.studies.study_file import load_study

README, START, PYTHON = (
    ROOT / "README.md",
    ROOT / "docs" / "start.md",
    ROOT / "docs" / "python.md",
)
#: Others round otherwise: a test row of a domain is 0.74 points.
WITHIN = 1.0
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")


@pytest.fixture
def benchmarks(monkeypatch):
    """The scripts of benchmarks/, to be imported."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])


@pytest.fixture
def pictures(benchmarks):
    import readme_pictures

    return readme_pictures


@pytest.fixture
def first_table(benchmarks):
    import first_table

    return first_table


def marked(file: Path, mark: str, name: str) -> str:
    """The block of a file behind ``<!-- mark: name -->``."""
    found = [
        b for b in blocks() if b.file == file and (b.mark, b.reason) == (mark, name)
    ]
    (block,) = found
    return block.text.strip()


def assert_agree(shown: str, printed: str):
    """The same lines; whole numbers are equal, others nearly."""
    said, found = shown.splitlines(), printed.splitlines()
    assert [_NUMBER.sub("", x).split() for x in said] == [
        _NUMBER.sub("", x).split() for x in found
    ]
    for one, other in zip(said, found):
        if "; " in one and one.startswith(("sent", "probabilities")):
            continue  # seconds; log-loss moves by more than a row
        pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other))
        for a, b in pairs:
            within = WITHIN if "." in a else 0
            assert float(a) == pytest.approx(float(b), abs=within), (one, other)


def test_the_readme_is_read_in_a_minute():
    text = README.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    assert 300 < len(" ".join(lines).split()) <= 700


def test_the_readme_counts_what_there_is():
    bounds = [m for m in METHODS.values() if m.pools_data or not m.federated]
    heads = [name for name in CLOSED_FORMS if name != "auto"]  # it chooses one of them
    assert (
        f"{len(METHODS) - len(bounds)} federated methods, {len(AUGMENTATIONS)} "
        f"augmentations, {len(heads)} one-shot heads"
    ) in README.read_text(encoding="utf-8")


def test_the_line_of_federatedscopes_users_is_there():
    found = [b.text.strip() for b in blocks() if b.file == README]
    assert "python federatedscope/main.py --cfg ggeur_officehome.yaml" in found


def test_the_pictures_are_those_of_their_script(pictures):
    text = README.read_text(encoding="utf-8")
    for name, picture in pictures.pictures().items():
        assert (pictures.FOLDER / name).read_text(encoding="utf-8") == picture
        assert f"(docs/pictures/{name})" in text


def test_what_is_said_of_the_figure_is_what_it_shows(pictures):
    text = README.read_text(encoding="utf-8")
    points = {point.row: point for point in pictures.read_points()}
    for row in ("LDA, compressed", "FedAvg", "GGEUR"):
        sent, accuracy = points[row].sent, points[row].accuracy
        assert f"{accuracy:.1f}% for {1000 * sent:.0f} kB" in text


@pytest.mark.slow
def test_the_figures_numbers_are_those_of_its_study(pictures):
    """Of two rows; accuracy and bytes are means over the study's seeds."""
    plan = load_study(pictures.NUMBERS.stem)
    points = {point.row: point for point in pictures.read_points()}
    for row in ("LDA, compressed", "FedAvg"):
        cells = [cell for cell in plan.cells() if cell.labels["sent"] == row]
        assert len(cells) == len(plan.seeds) == 5
        found = [
            run(cell.base, overrides={**cell.settings, "seed": cell.seed}).final
            for cell in cells
        ]
        assert points[row].accuracy == pytest.approx(
            100 * fmean(final.avg for final in found), abs=WITHIN
        )
        assert points[row].sent == pytest.approx(
            fmean(final.bytes_up for final in found) / 4e6, rel=0.02
        )


@pytest.mark.slow
def test_the_first_run_prints_what_is_shown(tmp_path):
    done = program("--cfg", "ggeur_quickstart.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = marked(START, "output", "run")
    assert_agree(shown, done.stdout.strip())
    average = re.search(r"^AVG .* ([\d.]+)$", shown, re.MULTILINE)[1]
    assert f"It ends with {average}%" in README.read_text(encoding="utf-8")


@pytest.mark.slow
def test_quickstart_prints_the_table_that_is_shown(tmp_path):
    done = program("quickstart", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = done.stdout[done.stdout.index("Overview") :].partition("\n\n")[0]
    shown = marked(README, "output", "quickstart")
    assert shown == marked(START, "output", "quickstart")
    assert_agree(shown, printed)
    again = program("quickstart", cwd=tmp_path)
    assert "50 of 50 runs are finished already" in again.stdout
    assert printed in again.stdout


def test_every_row_of_the_first_table_is_a_command_that_runs(first_table):
    rows = list(first_table.rows(START.read_text(encoding="utf-8")))
    assert len(rows) == 6
    for _, settings in rows:
        for more in first_table.DIVISIONS.values():
            load_config(first_table.CONFIG, [*settings, *more])


@pytest.mark.slow
def test_the_first_tables_numbers_are_those_of_its_commands(first_table):
    text = START.read_text(encoding="utf-8")
    lines = text.split("<!-- table: first -->")[1].split("\n\n")[0].strip().split("\n")
    of_study = marked(START, "output", "quickstart")
    for line, (head, settings) in zip(lines[2:], first_table.rows(text)):
        said = [float(x) for x in re.findall(r"\| ([0-9.]+) \(", line)]
        assert len(said) == 2
        found = re.search(rf"^{head} +([0-9.]+)", of_study, re.MULTILINE)
        if found:  # another test makes the runs of this table
            assert said[0] == round(float(found[1]), 1)
        columns = list(zip(said, first_table.DIVISIONS.values()))
        for value, more in columns[1:] if found else columns:
            # Four of the ten seeds; their mean is less sure.
            scores = first_table.scores([*settings, *more], seeds=4)
            assert fmean(scores) == pytest.approx(value, abs=2.5 * WITHIN)


@pytest.mark.slow
def test_the_classifier_gives_what_is_shown(tmp_path):
    done = python("-c", marked(README, "command", "classifier"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_agree(marked(README, "output", "classifier"), done.stdout.strip())
    assert not list(tmp_path.iterdir()), "nothing is written unless asked"


@pytest.mark.slow
def test_the_library_runs_as_it_stands(tmp_path):
    done = python("-c", marked(PYTHON, "command", "library"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("AVG ") == 5
    assert "mean of the last rounds: " in done.stdout
    # Class 0 and 1: 100 in all of step 1, 50 around the one prototype.
    assert done.stdout.splitlines()[-1] == "(300, 8) [150, 150]"
    assert not list(tmp_path.iterdir()), "a run from Python writes nothing"
