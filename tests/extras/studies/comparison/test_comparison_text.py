"""What the tables say, in a terminal and in Markdown."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from written_runs import made, noisy, write
from written_studies import write_study

from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.labels import label
from federatedscope_ggeur.extras.studies.comparison.runs import FoundRun
from federatedscope_ggeur.extras.studies.comparison.sheets import (
    overview_sheet,
    p_text,
    scores_sheet,
    sheets,
)
from federatedscope_ggeur.extras.studies.study import Axis, Cell, Study


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


# What runs that no study names are called.


def found(configs, cells=None, **changes):
    cells = cells or [None] * len(configs)
    return [
        FoundRun(Path(str(i)), made(noisy(0.5, i), i, config, **changes), cell)
        for i, (config, cell) in enumerate(zip(configs, cells))
    ]


def names(configs):
    labelled = label(found(configs), [])
    assert [axis.name for axis in labelled.axes] == ["settings"]
    return [labels["settings"] for labels in labelled.labels], labelled.notes


def test_settings_that_differ_name_the_rows():
    base = {"train": {"lr": 0.1}, "ggeur": {"steps": [1]}}
    other = {"train": {"lr": 0.1}, "ggeur": {"steps": []}}
    assert names([base, other, base]) == (["steps [1]", "steps []", "steps [1]"], [])


def test_seed_and_places_of_files_do_not():
    configs = [
        {"seed": i, "outdir": f"exp{i}", "federate": {"save_to": str(i)}, "verbose": i}
        for i in range(3)
    ]
    texts, _ = names(configs)
    assert len(set(texts)) == 1


def test_what_follows_from_another_setting_is_told_below():
    """Whatever a row's rate is, its method says it."""
    configs = [
        {"train": {"lr": lr, "rounds": rounds}, "ggeur": {"base_method": method}}
        for method, lr, rounds in (
            ("fedavg", 0.1, 10),
            ("fedprox", 0.2, 10),
            ("fedprox", 0.2, 20),
        )
    ]
    texts, notes = names(configs)
    assert texts == [
        "base_method fedavg, rounds 10",
        "base_method fedprox, rounds 10",
        "base_method fedprox, rounds 20",
    ]
    assert notes == [
        "these settings differ together with those that name the rows: train.lr"
    ]


def test_keys_of_one_ending_are_named_in_full():
    configs = [{"a": {"lr": a}, "b": {"lr": b}} for a, b in ((1, 1), (1, 2), (2, 1))]
    assert names(configs)[0][1] == "a.lr 1, b.lr 2"


def test_a_setting_that_one_run_lacks_differs():
    assert names([{"x": 1}, {}])[0] == ["x 1", "x (not set)"]


def test_who_ran_it_differs_too():
    runs = found([{}]) + found([{}], engine="federatedscope")
    labels = label(runs, []).labels
    assert [one["settings"] for one in labels] == [
        "engine embedded",
        "engine federatedscope",
    ]


def test_a_study_has_its_axes_in_its_order_with_the_points_that_ran():
    study = Study("s", "S", [Axis("m", ["z", "a", "gone"]), Axis("k", ["2"])], [0])
    cells = [Cell("s", {"k": "2", "m": point}, 0) for point in ("a", "z")]
    labelled = label(found([{}, {}], cells), [study])
    assert labelled.axes == [Axis("m", ["z", "a"]), Axis("k", ["2"])]
    assert labelled.from_study


def test_a_run_beside_a_study_is_named_by_its_settings():
    study = Study("s", "S", [Axis("m", ["a"])], [0])
    runs = found([{"x": 1}, {"x": 2}], [Cell("s", {"m": "a"}, 0), None])
    labelled = label(runs, [study])
    assert labelled.labels == [{"m": "a"}, {"m": "x 2"}]
    assert labelled.axes == [Axis("m", ["a", "x 2"])]


def closed(config):
    run = made([], 0, config, closed_form={"Art": 0.5})
    return FoundRun(Path(str(config)), run, None)


def test_a_run_that_is_a_closed_form_is_named_by_the_form():
    """Base method, steps and rates would do nothing in it."""
    trained = [
        {"ggeur": {"base_method": method, "steps": [1, 2], "closed_form": "none"}}
        for method in ("fedavg", "fedprox")
    ]
    form = {"ggeur": {"base_method": "fedavg", "steps": [], "closed_form": "lda"}}
    runs = [*found(trained), closed(form)]
    texts = [labels["settings"] for labels in label(runs, []).labels]
    assert texts == [
        "base_method fedavg, closed_form none",
        "base_method fedprox, closed_form none",
        "closed_form lda",
    ]


def test_closed_forms_that_differ_in_nothing_else_keep_settings_of_training():
    forms = [
        {"ggeur": {"steps": steps, "closed_form": kind}}
        for steps, kind in (([], "lda"), ([1], "lda"), ([1], "ncm"))
    ]
    runs = [closed(form) for form in forms]
    texts = [labels["settings"] for labels in label(runs, []).labels]
    assert texts == [
        "steps [], closed_form lda",
        "steps [1], closed_form lda",
        "closed_form ncm",
    ]


# Which head each row left: in every table, and in every form that it is written in.


#: Of each row the head, the end of its hash, and whose models were scored.
ROWS = {
    "kept": ("closed_form", "a", "global"),
    "the same": ("closed_form", "a", "global"),
    "trained": ("trained", "b", "global"),
    "behind": ("calibrated", "c", "global"),
    "own": ("trained", "b", "clients"),
    "alone": ("trained", None, "clients"),
}
SEEDS = (1, 2)


@pytest.fixture
def compared(tmp_path) -> Comparison:
    for name, (head, digest, scored) in ROWS.items():
        for seed in SEEDS:
            sha256 = None if digest is None else digest * 63 + str(seed)
            run = made([{"art": 0.5}, {"art": 0.25}], seed, {"name": name})
            left = {"head": head, "head_sha256": sha256, "scored": scored}
            run = replace(run, final=replace(run.final, **left))
            write(tmp_path / name / str(seed), run)
    return Comparison.of(tmp_path, baseline="name kept")


def shown(head: str) -> str:
    return head.replace("_", " ")


def texts(found: Comparison) -> dict[str, str]:
    return {
        "terminal": " ".join(found.to_text().split()),
        "markdown": found.to_markdown(),
        "latex": found.to_latex(),
        "html": found._repr_html_(),
        "page": found.to_html(),
    }


def test_every_table_marks_the_head_of_each_row(compared):
    tables = sheets(compared.tables[0], compared.target)
    assert len(tables) == 3  # scores, differences, what it takes
    for sheet in tables:
        place = sheet.columns.index("head") - 1
        marked = {name: str(cells[place]) for name, cells in sheet.rows}
        assert marked == {
            f"name {name}": shown(head) for name, (head, *_) in ROWS.items()
        }


@pytest.mark.parametrize("form", ["terminal", "markdown", "latex", "html", "page"])
def test_rows_that_left_one_head_are_named(compared, form):
    text = texts(compared)[form]
    assert "equal heads, to the bit, on seeds 1, 2: name kept; name the same." in text
    # Whose clients scored models of their own did not score the head that they share.
    assert "equal heads, to the bit, on seeds 1, 2: name trained" not in text
    text = text.replace("&#x27;", "'")
    whose = "scored by each client's own model, on its own test rows"
    assert f"{whose}: name alone; name own" in text


def test_csv_has_the_head_and_its_hash(compared):
    lines = list(csv.DictReader(io.StringIO(compared.to_csv())))
    for name, (head, digest, _) in ROWS.items():
        theirs = [line for line in lines if line["row"] == f"name {name}"]
        assert {line["head"] for line in theirs} == {shown(head)}
        hashes = {line["head_sha256"] for line in theirs if line["seed"] == "2"}
        assert hashes == {"" if digest is None else digest * 63 + "2"}
