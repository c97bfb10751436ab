"""The README and the first pages of the docs: short, and true of what they show."""

import re
import sys
from pathlib import Path
from statistics import fmean

import pytest
from documented import ROOT, blocks
from own_process import program, python

from federatedscope_ggeur import run
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.runs import AVG
from federatedscope_ggeur.extras.studies.quickstart import curve_title
from federatedscope_ggeur.extras.studies.study_file import load_study
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import CLOSED_FORMS

README = ROOT / "README.md"
START = ROOT / "docs" / "start.md"
PYTHON = ROOT / "docs" / "python.md"
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
    wanted = file, mark, name
    (block,) = [b for b in blocks() if (b.file, b.mark, b.reason) == wanted]
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
    methods = f"{len(METHODS) - len(bounds)} federated methods"
    said = f"{methods}, {len(AUGMENTATIONS)} augmentations, {len(heads)} one-shot heads"
    assert said in README.read_text(encoding="utf-8")


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
        accuracy = 100 * fmean(final.avg for final in found)
        assert points[row].accuracy == pytest.approx(accuracy, abs=WITHIN)
        sent = fmean(final.bytes_up for final in found) / 4e6
        assert points[row].sent == pytest.approx(sent, rel=0.02)


@pytest.mark.slow
def test_the_first_run_prints_what_is_shown(tmp_path):
    done = program("--cfg", "ggeur_quickstart.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_agree(marked(START, "output", "run"), done.stdout.strip())


@pytest.mark.slow
def test_quickstart_shows_what_is_shown(tmp_path, monkeypatch, capsys):
    """Who holds which classes, the table, and the numbers that the pages tell."""
    done = program("quickstart", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    clients, _, rest = done.stdout.partition("\n\n")
    for line in clients.splitlines()[2:12]:
        _, _, _, held, _, classes, *bars = line.split()
        assert len(bars) == int(classes) == 10
        assert sum(bar != "\u00b7" for bar in bars) == int(held)
    printed = rest[rest.index("Overview") :].partition("\n\n")[0]
    for name, found in (("clients", clients), ("quickstart", printed)):
        assert_agree(marked(README, "output", name), found)
    runs = tmp_path / "exp" / "quickstart_study"
    assert (runs / "curve.png").read_bytes().startswith(b"\x89PNG")
    (table,) = Comparison.of([runs]).tables
    said = START.read_text(encoding="utf-8")
    start, end = re.search(r"GGEUR has ([\d.]+)%.*?FedAvg ([\d.]+)%", said).groups()
    shown = re.findall(r"[\d.]+(?=%)", curve_title(table))
    assert list(map(float, shown)) == pytest.approx([float(start), float(end)], abs=1)
    leads = table.differences(AVG)
    for row in ("GGEUR", "One upload"):
        lead = float(re.search(rf"{row} leads FedAvg by ([\d.]+)", said)[1])
        found = leads[row.replace("One", "one")].spread.mean
        assert 100 * found == pytest.approx(lead, abs=WITHIN)
    monkeypatch.chdir(tmp_path)
    assert not main(["quickstart"])
    again = capsys.readouterr().out
    assert "50 of 50 runs are finished already" in again
    assert printed in again
    assert not main(["quickstart", "--quiet"])
    assert not capsys.readouterr().out


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
    for line, (_, settings) in zip(lines[2:], first_table.rows(text)):
        said = [float(x) for x in re.findall(r"\| ([0-9.]+) \(", line)]
        assert len(said) == 2
        for value, more in zip(said, first_table.DIVISIONS.values()):
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
