"""The paper's figures beside ours: which rows belong where, and what differs."""

from dataclasses import replace

import pytest
from written_runs import made, write

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.yaml_file import to_plain
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.beside import (
    beside_paper,
    beside_papers,
)
from federatedscope_ggeur.extras.studies.paper import paper_table
from federatedscope_ggeur.extras.studies.study import Axis, Cell, Study, to_text

PLAIN, GGEUR = "FedAvg (CLIP+MLP)", "FedAvg (CLIP+MLP) + GGEUR"


def config_of(name, **overrides):
    return to_plain(load_config(f"ggeur_{name}.yaml", overrides))


@pytest.fixture(scope="module")
def configs():
    return {
        "plain": config_of("officehome", **{"ggeur.steps": []}),
        "ggeur": config_of("officehome", **{"train.optimizer.lr": 0.5}),
    }


@pytest.fixture
def runs(tmp_path, configs):
    """Two methods of Table 7, two seeds each: 60% and 70%, a point a domain apart."""
    domains = [c for c in paper_table("table7").columns if c not in ("AVG", "STD")]
    for number, config in enumerate(configs.values()):
        for seed in (1, 2):
            mean = 0.6 + number / 10 + seed / 100
            scores = {domain: mean + i / 100 for i, domain in enumerate(domains)}
            results = made([scores] * 5, seed, {**config, "seed": seed})
            write(tmp_path / f"{number}_{seed}", results)
    return tmp_path


def test_rows_are_found_by_their_settings(runs):
    figures, _ = beside_paper(Comparison.of(runs), "table7")
    names = [name for name, _ in figures.rows]
    assert names[1::3] == [f"paper: {PLAIN}", f"paper: {GGEUR}"]
    assert names[2::3] == ["difference"] * 2
    paper = paper_table("table7")
    assert figures.columns == ["row", "seeds", "head", *paper.columns]
    ours, theirs, difference = (cells for _, cells in figures.rows[:3])
    place = 2 + paper.columns.index("AVG")
    printed = paper.rows[PLAIN]["AVG"]
    assert [str(cell) for cell in ours[:2]] == ["2", "trained"]
    assert ours[place].text == "63.00"  # the mean of 61, 62, 63, 64 and the same + 1
    assert theirs[place].text == f"{printed:.2f}"
    assert difference[place].text == f"{63 - printed:+.2f}"


def test_what_differs_is_told_and_what_the_paper_does_not_say(runs):
    _, settings = beside_paper(Comparison.of(runs), "table7")
    rows = {name: [str(cell) for cell in cells] for name, cells in settings.rows}
    theirs, ours, whom, source = rows["train.optimizer.lr"]
    assert (theirs, ours, source) == ("0.001", "0.5", "Table 8")
    assert "steps" in whom or "lr" in whom  # of the one row alone
    assert rows["seeds"][:3] == ["not said", "2", "all"]
    assert "ggeur.encoder.model" not in rows
    assert "federate.client_num" not in rows


def test_an_encoder_that_the_run_did_not_use_is_not_compared(tmp_path):
    """Its settings stand at the defaults, which are partly those of the paper."""
    own = {"data.type": "embeddings@ggeur", "data.root": "rows", "ggeur.steps": []}
    results = made([{"MNIST": 0.8}], 1, config_of("digits", **own))
    write(tmp_path / "1", replace(results, encoder="unknown"))
    _, settings = beside_paper(Comparison.of(tmp_path), "table11")
    rows = {name: [str(cell) for cell in cells] for name, cells in settings.rows}
    assert rows["encoder"] == ["CLIP (ViT-B/16)", "unknown", "all", "Table 8"]
    assert not any(name.startswith("ggeur.encoder") for name in rows)
    assert rows["ggeur.privacy.min_samples"][1] == "1"


def test_rows_are_found_by_their_names_first(tmp_path, configs):
    axes = [Axis("method", [GGEUR])]
    study = Study("s", "S", axes, [1], paper="table7")
    domains = paper_table("table7").columns[:-2]
    results = made([dict.fromkeys(domains, 0.5)], 1, configs["plain"])
    write(tmp_path / "a", results, Cell("s", {"method": GGEUR}, 1))
    (tmp_path / "study.json").write_text(to_text(study))
    found = Comparison.of(tmp_path)
    figures, _ = beside_papers(found)
    assert figures.rows[1][0] == f"paper: {GGEUR}"


def test_a_study_on_other_data_is_told_so(tmp_path, study_folder):
    study = Study("s", "S", [Axis("method", ["a"])], [1], paper="table7")
    write(tmp_path / "a", made([{"x": 0.5}], 1), Cell("s", {"method": "a"}, 1))
    (tmp_path / "study.json").write_text(to_text(study))
    found = Comparison.of(tmp_path)
    assert beside_papers(found) == []
    assert any("no row of these runs belongs to" in note for note in found.notes)
    assert beside_papers(Comparison.of(study_folder)) == []


def test_columns_of_alpha_are_found_by_settings(tmp_path):
    for alpha in (0.5, 0.1):
        own = {"ggeur.steps": [], "data.splitter_args": [{"alpha": alpha}]}
        config = config_of("cifar100", **own)
        write(tmp_path / str(alpha), made([{"cifar100": 0.8}], 1, config))
    figures, settings = beside_paper(Comparison.of(tmp_path), "table1")
    assert figures.columns == [
        "row", "seeds", "head", "CIFAR-100 0.5", "CIFAR-100 0.1",
    ]  # fmt: skip
    first, second = (cells for _, cells in figures.rows[::3])
    assert sorted(map(str, first[2:])) == sorted(map(str, second[2:])) == ["-", "80.00"]
    paper = paper_table("table1").rows[PLAIN]
    shown = {str(cell) for _, cells in figures.rows[1::3] for cell in cells}
    assert {f"{paper['CIFAR-100 0.5']:.2f}", f"{paper['CIFAR-100 0.1']:.2f}"} <= shown
    assert settings.rows


def test_table_11_is_of_seconds_a_round(tmp_path):
    config = config_of("digits", **{"ggeur.steps": []})
    results = made([{"MNIST": 0.8}] * 2, 1, config)
    slower = [replace(record, seconds=1.5) for record in results.rounds]
    write(tmp_path / "1", replace(results, rounds=slower))
    figures, _ = beside_paper(Comparison.of(tmp_path), "table11")
    ours, theirs, difference = (cells[2].text for _, cells in figures.rows)
    assert (ours, theirs, difference) == ("1.50", "28.20", "-26.70")


def test_runs_that_are_not_the_tables_are_refused(runs):
    found = Comparison.of(runs)
    for name in ("table4", "table1"):
        with pytest.raises(DataError, match="no row of these runs belongs to"):
            beside_paper(found, name)
    with pytest.raises(ConfigError, match="holds settings"):
        beside_paper(found, "table8")
    with pytest.raises(ConfigError, match="the GGEUR paper has no 'table99'"):
        beside_paper(found, "table99")


@pytest.mark.slow
def test_the_report_has_it(runs, tmp_path, ggeur):
    out = tmp_path / "out"
    words = ["report", str(runs), "--out", str(out), "--paper", "table7"]
    assert "Beside the paper's Table 7" in ggeur(*words, "--format", "svg").out
    for name in ("table.md", "report.html"):
        assert "Table 7" in (out / name).read_text(encoding="utf-8")
    assert main([*words[:3], str(out) + "2", "--paper", "table9"]) == 1
    assert not (tmp_path / "out2").exists()
