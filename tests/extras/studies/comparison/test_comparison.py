"""Rows, baselines, best rows and numbers of comparisons, against plain oracles."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from written_runs import made, noisy, write, write_study

from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.labels import (
    Spread,
    differences,
    holm,
    label,
    paired,
)
from federatedscope_ggeur.extras.studies.comparison.runs import (
    AVG,
    STD,
    FoundRun,
    bytes_so_far,
    find_runs,
    rounds_to,
    scored,
)
from federatedscope_ggeur.extras.studies.comparison.sheets import (
    overview_sheet,
    p_text,
    sheets,
)
from federatedscope_ggeur.extras.studies.comparison.table import COLUMNS
from federatedscope_ggeur.extras.studies.study import Axis, Cell, Study, to_text


@pytest.fixture
def flat_scores(tmp_path):
    """Writes runs of rows whose scores are given by seed; yields the comparison."""

    def go(rows, **options):
        for name, by_seed in rows.items():
            for seed, score in by_seed.items():
                scores = [{"a": score, "b": score / 2}]
                results = made(scores, seed, {"name": name})
                write(tmp_path / name / str(seed), results)
        return Comparison.of(tmp_path, **options)

    return go


def test_a_study_is_one_table(study_folder, study):
    found = Comparison.of(study_folder)
    assert found.studies == [study]
    (table,) = found.tables
    assert table.domains == ["Art", "Clipart"]
    # Each is compared with FedAvg at its own alpha.
    assert list(table.baselines.items()) == [
        (f"{method}, {alpha}", f"FedAvg, {alpha}")
        for method in ("FedAvg", "FedAvg + GGEUR_1 & 50%")
        for alpha in ("0.5", "0.1")
    ]
    assert list(table.rows) == list(table.baselines)
    assert [list(row.runs) for row in table.rows.values()] == [[1, 2, 3, 4, 5]] * 4


@pytest.mark.parametrize("baseline", ["FedAvg, 0.1", "alpha=0.1", "0.1"])
def test_a_baseline_of_ones_own(study_folder, baseline):
    (table,) = Comparison.of(study_folder, baseline).tables
    of_ggeur = table.baselines["FedAvg + GGEUR_1 & 50%, 0.5"]
    own = "FedAvg + GGEUR_1 & 50%, 0.1"
    assert of_ggeur == ("FedAvg, 0.1" if "," in baseline else own)


def test_without_a_baseline_in_the_study_it_is_the_first_point(tmp_path, study):
    study = replace(study, baseline=None, tuned=[], failed=[])
    means = {("FedAvg", "0.5"): 0.4, ("FedAvg + GGEUR_1 & 50%", "0.5"): 0.5}
    (table,) = Comparison.of(write_study(tmp_path / "s", study, means)).tables
    # The axis with one point names no row.
    assert list(table.rows) == ["FedAvg", "FedAvg + GGEUR_1 & 50%"]
    assert set(table.baselines.values()) == {"FedAvg"}
    assert "alpha 0.5" in table.title


def test_wrong_baselines_and_targets(study_folder):
    with pytest.raises(ConfigError, match=r"point 'x'\. Name one of these:\n  FedAvg"):
        Comparison.of(study_folder, "x")
    with pytest.raises(ConfigError, match=r"0\.8 for 80%"):
        Comparison.of(study_folder, target=80)


def test_a_point_of_two_axes_is_ambiguous(tmp_path, study):
    axes = [Axis("one", ["x", "y"]), Axis("two", ["x", "y"])]
    study = replace(study, axes=axes, baseline=None)
    means = {(a, b): 0.5 for a in "xy" for b in "xy"}
    folder = write_study(tmp_path / "s", study, means)
    with pytest.raises(ConfigError, match="'one=x', 'two=x'"):
        Comparison.of(folder, "x")
    assert Comparison.of(folder, "two=x").tables[0].baselines["y, y"] == "y, x"


def test_runs_without_a_study_are_compared_with_the_first(flat_scores):
    (table,) = flat_scores({"b": {1: 0.5}, "a": {1: 0.6}}).tables
    assert list(table.rows) == ["name a", "name b"]  # in order of their paths
    assert set(table.baselines.values()) == {"name a"}


def test_each_data_set_has_its_table(tmp_path):
    write(tmp_path / "1", made(noisy(0.5, 1), 1))
    write(tmp_path / "2", made(noisy(0.5, 1, domains=("Clipart", "Art")), 2))
    write(tmp_path / "3", made(noisy(0.5, 1, domains=("Art",)), 1))
    write(tmp_path / "4", made(noisy(0.5, 1), 1, class_names=["x", "y"]))
    tables = Comparison.of(tmp_path).tables
    assert [len(table.domains) for table in tables] == [2, 1, 2]
    assert list(next(iter(tables[0].rows.values())).runs) == [1, 2]
    assert tables[1].scores == [AVG]


def test_two_runs_of_one_row_and_seed_are_refused(tmp_path):
    for name in "12":
        write(tmp_path / name, made(noisy(0.5, 1), 1))
    with pytest.raises(DataError, match=r"seed 1: .*1' and .*2'; leave one of "):
        Comparison.of(tmp_path)


def best(comparison, measure=AVG):
    found = comparison.tables[0].best(measure)
    assert found.tested in (found.rows, frozenset())
    return {name.split()[-1] for name in found.rows}, bool(found.tested)


def test_the_best_is_one_of_rows_at_the_same_alpha(study_folder):
    (table,) = Comparison.of(study_folder).tables
    assert table.best(AVG).rows == {
        "FedAvg + GGEUR_1 & 50%, 0.5",
        "FedAvg + GGEUR_1 & 50%, 0.1",
    }


TOP = dict.fromkeys(range(6), 0.8)
RISING = {1: 0.5, 2: 0.625, 3: 0.75, 4: 0.875, 5: 0.5}
SHIFTED = {seed: score - 0.25 for seed, score in RISING.items()}
OF_FOUR = {1: 0.5, 2: 0.6, 3: 0.7, 4: 0.6}
BEST = {
    "four seeds are no test": (
        {"a": OF_FOUR, "b": {**OF_FOUR, 4: 0.61}}, AVG, ({"b"}, False)
    ),
    # One is a little worse on every seed, another is far worse on some.
    "no row is marked below one that is not": (
        {
            "top": TOP,
            "close": {seed: 0.79 - 0.001 * (seed % 2) for seed in TOP},
            "varies": {seed: 0.5 if seed < 2 else 0.82 for seed in TOP},
        },
        AVG,
        ({"top"}, True),
    ),
    "a row that is worse by chance": (
        {"a": TOP, "b": {seed: 0.81 - 0.04 * (seed % 2) for seed in TOP}},
        AVG,
        ({"a", "b"}, True),
    ),
    # Without spread there is no p-value, but nothing speaks for it either.
    "a row that is worse on every seed alike": (
        {"a": RISING, "b": SHIFTED, "c": RISING}, AVG, ({"a", "c"}, True)
    ),
    "of deviations the smallest": ({"a": {1: 0.9}, "b": {1: 0.2}}, STD, ({"b"}, False)),
    "one row is compared with nothing": ({"a": {1: 0.5, 2: 0.6}}, AVG, (set(), False)),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "measure", "wanted"), BEST.values(), ids=BEST)
def test_which_rows_are_best(flat_scores, rows, measure, wanted):
    assert best(flat_scores(rows), measure) == wanted


def test_one_row_has_no_baseline(flat_scores):
    rows = {"a": {1: 0.5, 2: 0.6}}
    with pytest.raises(ConfigError, match="nothing can be compared"):
        flat_scores(rows, baseline="a")


def test_other_seeds_are_said(flat_scores):
    (table,) = flat_scores({"a": {1: 0.5, 2: 0.6}, "b": {2: 0.7, 3: 0.6}}).tables
    assert table.differences(AVG)["name b"].spread.n == 1
    assert any("not all rows have the same seeds" in note for note in table.notes)


@pytest.mark.parametrize(("rounds", "early"), [(1, False), (5, True), (10, False)])
def test_scores_over_early_rounds_are_said(tmp_path, rounds, early):
    for name in "ab":
        results = made([{"a": 0.5}] * rounds, 1, {"name": name})
        write(tmp_path / name, results)
    (table,) = Comparison.of(tmp_path).tables
    said = [note for note in table.notes if "how fast a method learns" in note]
    assert [note.endswith(": name a; name b") for note in said] == [True] * early


def test_other_data_are_said(tmp_path):
    for number, name in enumerate("ab"):
        results = made(noisy(0.5, 1), 1, {"name": name})
        data = replace(results.provenance.data, sha256=str(number))
        results = replace(results, provenance=replace(results.provenance, data=data))
        write(tmp_path / name, results)
    (table,) = Comparison.of(tmp_path).tables
    (note,) = (n for n in table.notes if "other embeddings or splits" in n)
    assert note.endswith(": name b")


def test_a_mean_over_changed_data_is_said(tmp_path):
    pools = {"a": ["x", "x"], "b": ["x", "y"], "c": ["x", None]}
    for name, of_seeds in pools.items():
        for seed, pool in enumerate(of_seeds):
            results = made(noisy(0.5, seed), seed, {"name": name})
            made_by = results.provenance
            made_by = replace(made_by, data=replace(made_by.data, pool=pool))
            write(tmp_path / f"{name}{seed}", replace(results, provenance=made_by))
    (table,) = Comparison.of(tmp_path).tables
    (note,) = (n for n in table.notes if "the data set changed between" in n)
    assert note.endswith(": name b")


def test_states_that_were_scored():
    rounds = [{"a": 0.2}, {"a": 0.4}, {"a": 0.6}]
    results = made(rounds, 1, closed_form={"a": 0.3})
    first, second, third = results.rounds
    unevaluated = replace(second, accuracy=None, avg=None)
    results = replace(results, rounds=[first, unevaluated, third])
    assert [record.round for record in scored(results)] == [0, 1, 3]
    assert [rounds_to(results, t) for t in (0.3, 0.31, 0.6, 0.61)] == [0, 3, 3, None]
    # Round 0 is 18 bytes up and 99 down; the head 24; a round 4000; two clients.
    sent = [(record.round, total) for record, total in bytes_so_far(results)]
    assert sent == [(0, 70.5), (1, 2070.5), (3, 6070.5)]


def test_csv_has_every_number_to_the_bit(study_folder):
    found = Comparison.of(study_folder)
    (table,) = found.tables
    lines = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert set(lines[0]) == {"method", "alpha", *COLUMNS}
    name = "FedAvg + GGEUR_1 & 50%, 0.1"
    own = [x for x in lines if (x["row"], x["measure"]) == (name, "avg")]
    assert {x["alpha"] for x in own} == {"0.1"}
    by_seed = {int(x["seed"]): float(x["value"]) for x in own if x["seed"]}
    assert by_seed == table.rows[name].numbers(AVG)
    mean, difference = (x for x in own if not x["seed"])
    spread = table.rows[name].spread(AVG)
    assert (float(mean["value"]), float(mean["sd"])) == (spread.mean, spread.sd)
    assert (float(mean["low"]), float(mean["high"])) == (spread.low, spread.high)
    assert difference["baseline"] == "FedAvg, 0.1"
    assert float(difference["p_holm"]) == table.differences(AVG)[name].p_holm
    assert {x["measure"] for x in lines} >= {"accuracy", "std", "bytes_up", "seconds"}


def test_a_cell_of_labels_that_lacks_an_axis(tmp_path):
    """Two studies in one report, one of which has an axis more."""
    write(tmp_path / "1", made(noisy(0.5, 1), 1), Cell("a", {"m": "x"}, 1))
    labels = {"m": "x", "k": "2"}
    write(tmp_path / "2", made(noisy(0.6, 1), 1), Cell("b", labels, 1))
    labels = {"m": "x", "k": "3"}
    write(tmp_path / "3", made(noisy(0.7, 1), 1), Cell("b", labels, 1))
    (table,) = Comparison.of(tmp_path).tables
    assert len(table.rows) == 3


# Statistics over seeds, against scipy and plainly written oracles.


SCORES = st.floats(0, 1).map(lambda x: round(x, 4))
TABLES = st.integers(2, 8).flatmap(
    lambda n: st.lists(st.lists(SCORES, min_size=n, max_size=n), min_size=2, max_size=4)
)


def by_seed(values):
    return dict(enumerate(values))


@given(st.lists(SCORES, min_size=2, max_size=20))
def test_mean_deviation_and_interval_are_scipys(values):
    spread = Spread.of(values)
    assert spread.mean == pytest.approx(np.mean(values))
    assert spread.sd == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    if np.ptp(values) < 1e-9:
        assert (spread.low, spread.high) == (None, None)
        return
    expected = stats.t.interval(
        0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)
    )
    assert (spread.low, spread.high) == pytest.approx(expected)


def test_of_none_one_and_equal_numbers():
    assert Spread.of([]) is None
    assert Spread.of([0.5]) == Spread(1, 0.5, None, None, None)
    # 0.1 + 0.2 is not 0.3 to the bit: rounding is no spread.
    assert Spread.of([0.3, 0.1 + 0.2, 0.3]).sd == 0.0


@examples(40)
@given(TABLES)
def test_a_table_is_tested_as_scipy_does(table):
    base, *others = table
    assume(all(np.ptp(np.subtract(row, base)) > 1e-6 for row in others))
    found = differences(
        {str(i): (by_seed(r), by_seed(base)) for i, r in enumerate(others)}
    )
    ps = [stats.ttest_rel(row, base).pvalue for row in others]
    assert [d.p for d in found.values()] == pytest.approx(ps, abs=1e-9)
    assert [d.p_holm for d in found.values()] == pytest.approx(plain_holm(ps), abs=1e-9)
    for row, d in zip(others, found.values()):
        assert d.spread.mean == pytest.approx(np.mean(np.subtract(row, base)))
        assert d.spread.n == len(base)


def plain_holm(ps):
    """Holm (1979), as it is written: the largest of (m - j + 1) p_(j) for j <= k."""
    ordered = sorted(ps)
    m = len(ps)

    def corrected(p):
        k = ordered.index(p)
        return max(min(1, (m - j) * ordered[j]) for j in range(k + 1))

    return [corrected(p) for p in ps]


def test_holm_passes_over_what_does_not_exist():
    assert holm([None, 0.01, None, 0.02]) == [None, 0.02, None, 0.02]
    assert holm([]) == []


def test_pairs_are_made_by_seed():
    found = paired({3: 0.5, 1: 0.2, 9: 0.7}, {1: 0.1, 3: 0.3, 4: 0.0})
    assert (found.spread.n, found.spread.mean) == (2, pytest.approx(0.15))
    assert found.p == pytest.approx(stats.ttest_rel([0.2, 0.5], [0.1, 0.3]).pvalue)
    assert paired({1: 0.5}, {2: 0.5}) is None
    assert paired({1: 0.5}, {1: 0.25}).p is None


def test_without_spread_nothing_is_claimed():
    """A shift that is the same on all seeds has no p-value, and neither has none."""
    base = by_seed([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    rounded = {k: v * (1 + 2e-16) for k, v in base.items()}
    for equal in (paired(base, base), paired(rounded, base)):
        assert (equal.spread.mean, equal.p, equal.is_equal) == (0.0, None, True)
    # 0.1 + 0.25 and the like round in their last bits.
    found = paired({k: v + 0.25 for k, v in base.items()}, base)
    assert (found.spread.sd, found.p, found.spread.low) == (0.0, None, None)
    assert found.spread.mean == pytest.approx(0.25)
    assert not found.is_equal


@pytest.mark.parametrize("third", [{}, {"equal": OF_FOUR}, {"one seed": {1: 0.5}}])
def test_a_row_without_a_test_is_said_and_does_not_count(flat_scores, third):
    rows = {"a": OF_FOUR, "b": {1: 0.5, 2: 0.7, 3: 0.9, 4: 0.5}, **third}
    (table,) = flat_scores(rows).tables
    _, sheet, _ = sheets(table, None)
    p, p_holm = (str(cell) for cell in sheet.rows[1][1][-2:])
    assert p == p_holm
    for _, cells in sheet.rows[2:]:
        assert [str(cell) for cell in cells[-2:]] == ["-", "-"]
    assert "tests (1)" in sheet.notes[0]
    said = [note for note in sheet.notes if note.startswith("-: fewer than two seeds")]
    assert len(said) == len(third)


# Which runs are found below folders, and what is said of those that cannot be read.


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
    killed = tmp_path / "killed"
    (killed / "private").mkdir(parents=True)
    (killed / "private" / "checkpoint").touch()
    with pytest.raises(DataError, match=r"was cut off, .*federate\.restore_from '"):
        find_runs([killed])


def test_all_of_them_are_listed_with_the_schema_that_is_read(tmp_path):
    for number in range(11):
        folder = write(tmp_path / f"run_{number:02d}", run())
        raw = json.loads((folder / "results.json").read_text())
        raw["schema_version"] = 9
        (folder / "results.json").write_text(json.dumps(raw))
    (tmp_path / "run_00" / "results.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="and 1 more") as error:
        find_runs([tmp_path])
    lines = str(error.value).splitlines()[1:]
    assert str(tmp_path / "run_00" / "results.json") in lines[0]
    assert "cannot be read" in lines[0]
    assert all("reads 10 and 11, found 9" in line for line in lines[1:10])


# What the tables say, in a terminal and in Markdown.


def one(tmp_path, *scores, name="a", seeds=(1, 2, 3)):
    for seed, (art, mug) in zip(seeds, scores):
        results = made([{"Art": art, "Mug": mug}], seed, {"name": name})
        write(tmp_path / name / str(seed), results)


def test_the_overview_is_avg_its_standard_error_and_bytes(tmp_path):
    one(tmp_path, (0.5, 0.3), (0.6, 0.4), (0.7, 0.8))
    one(tmp_path, (0.6, 0.4), name="b", seeds=(1,))
    (table,) = Comparison.of(tmp_path).tables
    sheet = overview_sheet(table)
    sent = [f"MB {way} a client" for way in ("up", "down")]
    assert sheet.columns[1:] == ["accuracy", "s.e.", *sent]
    (name, several), (_, single) = sheet.rows
    assert name == "name a"
    averages = [40.0, 50.0, 75.0]
    assert [str(cell) for cell in several[:2]] == [
        f"{np.mean(averages):.2f}",
        f"{stats.sem(averages):.2f}",
    ]
    # Two clients: 18 and 1,000 bytes up, 99 and 3,000 down.
    assert [str(cell) for cell in several[2:]] == ["0.000509", "0.00155"]
    assert str(single[1]) == "-", "one seed has no error"
    assert "over 1 or 3 seeds" in sheet.notes[0]


def test_the_terminal_table(tmp_path):
    one(tmp_path, (0.5, 0.3), (0.6, 0.4), (0.7, 0.5))
    one(tmp_path, (0.6, 0.4), (0.72, 0.52), (0.79, 0.59), name="b")
    compared = Comparison.of(tmp_path)
    (table,), lines = compared.tables, compared.to_text().splitlines()
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
    assert "no row is claimed to be better" in " ".join(compared.to_text().split())
    assert "| name b | 3 | trained | _70.33_ ± 9.61 |" in compared.to_markdown()
    assert first.index("10.00 ± 0.00") == second.index("10.00 ± 0.00")
    start = lines.index(
        "Differences to name a, seed by seed: office, 2 domains, 2 classes"
    )
    difference = table.differences(AVG)["name b"]
    low, high = (
        f"{100 * end:+.2f}" for end in (difference.spread.low, difference.spread.high)
    )
    p = p_text(difference.p)
    cells = ["3", "+10.33", f"[{low},", f"{high}]", p, p]
    assert lines[start + 4].split()[-6:] == cells


def test_unseen_domains_are_marked(tmp_path):
    results = made(noisy(0.5, 1), 1, unseen_domains=["Art"])
    write(tmp_path / "1", results)
    assert "Art (unseen)" in Comparison.of(tmp_path).to_text()


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
    shown = {
        None: "-",
        0.0: "< 0.001",
        0.0009: "< 0.001",
        0.0123: "0.012",
        1.0: "1.000",
    }
    assert {p: p_text(p) for p in shown} == shown


# What runs that no study names are called.


def found(configs, cells=None, **changes):
    cells = cells or [None] * len(configs)
    return [
        FoundRun(Path(str(i)), made(noisy(0.5, i), i, config, **changes), cell)
        for i, (config, cell) in enumerate(zip(configs, cells))
    ]


def texts_of(runs):
    return [labels["settings"] for labels in label(runs, []).labels]


def names(configs):
    labelled = label(found(configs), [])
    assert [axis.name for axis in labelled.axes] == ["settings"]
    return [labels["settings"] for labels in labelled.labels], labelled.notes


BY_METHOD = (("fedavg", 0.1, 10), ("fedprox", 0.2, 10), ("fedprox", 0.2, 20))
NAMED = {
    "settings that differ": (
        [{"train": {"lr": 0.1}, "ggeur": {"steps": steps}} for steps in ([1], [], [1])],
        ["steps [1]", "steps []", "steps [1]"],
    ),
    "two keys of one ending": (
        [{"a": {"lr": a}, "b": {"lr": b}} for a, b in ((1, 1), (1, 2), (2, 1))],
        ["a.lr 1, b.lr 1", "a.lr 1, b.lr 2", "a.lr 2, b.lr 1"],
    ),
    "a setting that one run lacks": ([{"x": 1}, {}], ["x 1", "x (not set)"]),
    # Whatever a row's rate is, its method says it.
    "what follows from another setting": (
        [
            {"train": {"lr": lr, "rounds": rounds}, "ggeur": {"base_method": method}}
            for method, lr, rounds in BY_METHOD
        ],
        [f"base_method {method}, rounds {rounds}" for method, _, rounds in BY_METHOD],
    ),
}


@pytest.mark.parametrize("case", NAMED)
def test_settings_that_differ_name_the_rows(case):
    configs, texts = NAMED[case]
    follows = "these settings differ together with those that name the rows: train.lr"
    told = [follows] if case == "what follows from another setting" else []
    assert names(configs) == (texts, told)


def test_switches_that_follow_the_method_are_not_told():
    configs = [
        {"ggeur": {"base_method": method}, "fedprox": {"use": method == "fedprox"}}
        for method in ("fedavg", "fedprox")
    ]
    assert names(configs) == (["base_method fedavg", "base_method fedprox"], [])


def test_whole_numbers_are_written_as_such():
    texts = ["hidden 64, lr 0.5", "hidden 0, lr 1"]
    configs = [{"hidden": 64.0, "lr": 0.5}, {"hidden": 0.0, "lr": 1.0}]
    configs.append({"hidden": 0, "lr": 0.5})
    assert names(configs)[0] == [*texts, "hidden 0, lr 0.5"]


def test_seed_and_places_of_files_name_none():
    configs = [
        {"seed": i, "outdir": f"exp{i}", "federate": {"save_to": str(i)}, "verbose": i}
        for i in range(3)
    ]
    assert len(set(names(configs)[0])) == 1


def test_who_ran_it_differs_too():
    runs = found([{}]) + found([{}], engine="federatedscope")
    assert texts_of(runs) == ["engine embedded", "engine federatedscope"]


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
    methods = [f"base_method {one}, closed_form none" for one in ("fedavg", "fedprox")]
    assert texts_of([*found(trained), closed(form)]) == [*methods, "closed_form lda"]


def test_closed_forms_that_differ_in_nothing_else_keep_settings_of_training():
    forms = (([], "lda"), ([1], "lda"), ([1], "ncm"))
    runs = [closed({"ggeur": {"steps": s, "closed_form": kind}}) for s, kind in forms]
    lda = [f"steps {steps}, closed_form lda" for steps in ([], [1])]
    assert texts_of(runs) == [*lda, "closed_form ncm"]


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


@pytest.fixture
def compared(tmp_path) -> Comparison:
    for name, (head, digest, whose) in ROWS.items():
        for seed in (1, 2):
            sha256 = None if digest is None else digest * 63 + str(seed)
            run = made([{"art": 0.5}, {"art": 0.25}], seed, {"name": name})
            left = {"head": head, "head_sha256": sha256, "scored": whose}
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
        "paper": found.to_latex("paper"),
        "avg": found.to_latex("avg"),
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


FORMS = ["terminal", "markdown", "latex", "paper", "avg", "html", "page"]


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_left_one_head_are_named(compared, form):
    text = texts(compared)[form]
    assert "equal heads, to the bit, on seeds 1, 2: name kept; name the same." in text
    # Whose clients scored models of their own did not score the head that they share.
    assert "equal heads, to the bit, on seeds 1, 2: name trained" not in text
    text = text.replace("&#x27;", "'")
    whose = "scored by each client's own model, on its own test rows"
    assert f"{whose}: name alone; name own" in text


def test_a_table_of_all_data_sets_says_of_which_the_notes_are(compared):
    (table,) = compared.tables
    rows = {"name kept": table.rows["name kept"]}
    other = replace(table, title="other data", rows=rows, baselines={})
    both = replace(compared, tables=[table, other])
    for style in ("report", "avg"):
        first = both.to_latex(style).split(r"\end{table")[0]
        assert f"{table.title}: equal heads, to the bit, on seeds 1, 2: name" in first


def test_csv_has_the_head_and_its_hash(compared):
    lines = list(csv.DictReader(io.StringIO(compared.to_csv())))
    for name, (head, digest, _) in ROWS.items():
        theirs = [line for line in lines if line["row"] == f"name {name}"]
        assert {line["head"] for line in theirs} == {shown(head)}
        hashes = {line["head_sha256"] for line in theirs if line["seed"] == "2"}
        assert hashes == {"" if digest is None else digest * 63 + "2"}
