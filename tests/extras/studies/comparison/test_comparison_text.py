"""What the tables say, in a terminal and in Markdown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import stats
from written_runs import made, noisy, write
from written_studies import write_study

from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.sheets import (
    overview_sheet,
    p_text,
    scores_sheet,
    sheets,
)


def one(tmp_path, *scores, name="a", seeds=(1, 2, 3)):
    for seed, (art, mug) in zip(seeds, scores):
        results = made([{"Art": art, "Mug": mug}], seed, {"name": name})
        write(tmp_path / name / str(seed), results)


def test_the_overview_is_avg_its_standard_error_and_bytes(tmp_path):
    one(tmp_path, (0.5, 0.3), (0.6, 0.4), (0.7, 0.8))
    one(tmp_path, (0.6, 0.4), name="b", seeds=(1,))
    (table,) = Comparison.of(tmp_path).tables
    sheet = overview_sheet(table)
    assert sheet.columns[1:] == [
        "accuracy",
        "s.e.",
        "MB up a client",
        "MB down a client",
    ]
    (name, several), (_, single) = sheet.rows
    assert name == "name a"
    averages = [40.0, 50.0, 75.0]
    assert [str(cell) for cell in several[:2]] == [
        f"{np.mean(averages):.2f}",
        f"{stats.sem(averages):.2f}",
    ]
    # Two clients: 1,200 and 1,000 bytes up, 108 and 3,000 down.
    assert [str(cell) for cell in several[2:]] == ["0.00110", "0.00155"]
    assert str(single[1]) == "-", "one seed has no error"
    assert "over 1 or 3 seeds" in sheet.notes[0]


def test_the_terminal_table(tmp_path):
    one(tmp_path, (0.5, 0.3), (0.6, 0.4), (0.7, 0.5))
    one(tmp_path, (0.6, 0.4), (0.72, 0.52), (0.79, 0.59), name="b")
    lines = Comparison.of(tmp_path).to_text().splitlines()
    head, rule, first, second, below = lines[1:6]
    assert lines[0] == "Accuracy: office, 2 domains, 2 classes"
    assert head.split() == [
        "settings", "seeds", "head", "Art", "Mug", "AVG", "STD",
    ]  # fmt: skip
    assert first.split("  ")[0] == "name a"
    words = "3 trained 60.00 ± 10.00 40.00 ± 10.00 50.00 ± 10.00 10.00 ± 0.00~"
    assert first.split()[2:] == words.split()
    words = "3 trained 70.33 ± 9.61~ 50.33 ± 9.61~ 60.33 ± 9.61~ 10.00 ± 0.00"
    assert second.split()[2:] == words.split()
    assert rule == below == "-" * len(rule)
    assert first.index("10.00 ± 0.00") == second.index("10.00 ± 0.00")
    start = lines.index(
        "Differences to name a, seed by seed: office, 2 domains, 2 classes"
    )
    test = stats.ttest_rel([0.5, 0.62, 0.69], [0.4, 0.5, 0.6])
    apart = [0.1, 0.12, 0.09]
    ends = stats.t.interval(0.95, 2, loc=np.mean(apart), scale=stats.sem(apart))
    low, high = (f"{100 * x:+.2f}" for x in ends)
    p = f"{test.pvalue:.3f}"
    assert lines[start + 4].split()[-6:] == [
        "3",
        "+10.33",
        f"[{low},",
        f"{high}]",
        p,
        p,
    ]


def test_one_seed_has_no_deviation_and_no_claim(tmp_path):
    one(tmp_path, (0.5, 0.3))
    one(tmp_path, (0.6, 0.5), name="b")
    found = Comparison.of(tmp_path)
    sheet = scores_sheet(found.tables[0])
    _, cells = sheet.rows[1]
    about, scores = cells[:2], cells[2:]
    assert [str(cell) for cell in about] == ["1", "trained"]
    assert [str(cell) for cell in scores] == ["60.00", "50.00", "55.00", "5.00"]
    assert [cell.mark for cell in cells] == ["", "", "top", "top", "top", "top"]
    assert any("no row is claimed" in note for note in sheet.notes)
    assert "_60.00_" in found.to_markdown()
    assert "55.00~" in found.to_text()


def test_domains_without_test_rows(tmp_path):
    one(tmp_path, (0.5, None))
    one(tmp_path, (0.75, None), name="b")
    table = Comparison.of(tmp_path).tables[0]
    cells = dict(scores_sheet(table).rows)["name b"]
    assert [str(cell) for cell in cells[2:]] == ["75.00", "-", "75.00", "0.00"]


def test_unseen_domains_are_marked(tmp_path):
    results = made(noisy(0.5, 1), 1, unseen_domains=["Art"])
    write(tmp_path / "1", results)
    assert "Art (unseen)" in Comparison.of(tmp_path).to_text()


def test_markdown_escapes_names_and_marks_the_best(tmp_path, study):
    study = replace(study, title="a *title* | of_mine")
    means = {("FedAvg", "0.1"): 0.4, ("FedAvg + GGEUR_1 & 50%", "0.1"): 0.6}
    text = Comparison.of(write_study(tmp_path / "s", study, means)).to_markdown()
    assert "| FedAvg + GGEUR\\_1 & 50% | 5 | trained | **" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for first, second in zip(rows, rows[1:]):
        if second.startswith("| ---"):
            assert first.count("|") == second.count("|")


def test_what_was_tuned_and_what_failed_stands_below(study_folder):
    found = Comparison.of(study_folder)
    assert found.all_notes == [
        "FedAvg, 0.1: lr 0.1, chosen on the validation split of seed 1 by val_acc "
        "among lr 0.1 (0.75); lr 10.0 (diverged)",
        "failed: FedProx, seed 2: out of memory",
    ]
    for text in (found.to_text(), found.to_markdown(), found.to_latex()):
        assert "out of memory" in text
    assert "validation split" in found.to_html()


def test_axes_side_by_side_come_first(tmp_path, study):
    study = replace(study, columns=["alpha"])
    means = {("FedAvg", "0.1"): 0.4, ("FedAvg", "0.5"): 0.5,
             ("FedAvg + GGEUR_1 & 50%", "0.1"): 0.6}  # fmt: skip
    found = Comparison.of(write_study(tmp_path / "s", study, means))
    first, *_ = sheets(found.tables[0], found.target)
    assert first.columns == ["method", "head", "alpha = 0.5", "alpha = 0.1"]
    assert found.to_text().startswith(f"AVG by alpha: {found.tables[0].title}\n")
    (_, fedavg), (_, ggeur) = first.rows
    assert [ggeur[0].text, ggeur[1].text] == ["trained", "-"]
    assert [cell.mark for cell in (*fedavg, ggeur[2])] == ["", "", "", "best"]


def test_each_row_names_its_own_baseline_where_there_are_several(study_folder):
    found = Comparison.of(study_folder)
    sheet = sheets(found.tables[0], found.target)[1]
    assert sheet.title == "Differences to the baseline, seed by seed"
    assert [cells[2].text for _, cells in sheet.rows] == [
        "baseline",
        "baseline",
        "FedAvg, 0.5",
        "FedAvg, 0.1",
    ]


def test_wilcoxon_from_six_seeds(tmp_path):
    rng_scores = [(0.5 + i / 100, 0.4) for i in range(6)]
    one(tmp_path, *rng_scores, seeds=range(6))
    one(tmp_path, *[(a + a / 10, b) for a, b in rng_scores], name="b", seeds=range(6))
    text = Comparison.of(tmp_path).to_text()
    assert "p (Wilcoxon)" in text
    assert "0.031" in text  # 2 / 2^6: all differences have one sign


def test_rounds_to_what_the_baseline_ends_with(tmp_path):
    for seed in (1, 2):
        a = made([{"x": 0.2}, {"x": 0.6}], seed, {"name": "a"})
        b = made([{"x": 0.5 if seed == 1 else 0.1}], seed, {"name": "b"})
        write(tmp_path / "a" / str(seed), a)
        write(tmp_path / "b" / str(seed), b)
    found = Comparison.of(tmp_path)
    costs = dict(sheets(found.tables[0], found.target)[-1].rows)
    assert [str(cell) for cell in costs["name a"][3:5]] == ["40", "2.0"]
    assert [str(cell) for cell in costs["name b"][3:5]] == ["40", "1.0 (1 of 2 seeds)"]
    asked = Comparison.of(tmp_path, target=0.9)
    costs = dict(sheets(asked.tables[0], asked.target)[-1].rows)
    assert [str(cell) for cell in costs["name b"][3:5]] == ["90", "never"]


def test_p_values_for_a_person():
    assert [p_text(p) for p in (None, 0.0, 0.0009, 0.0123, 1.0)] == [
        "-",
        "< 0.001",
        "< 0.001",
        "0.012",
        "1.000",
    ]
