"""What runs that no study names are called."""

from __future__ import annotations

from pathlib import Path

from written_runs import made, noisy

from federatedscope_ggeur.extras.studies.comparison.labels import label
from federatedscope_ggeur.extras.studies.comparison.runs import FoundRun
from federatedscope_ggeur.extras.studies.study import Axis, Cell, Study


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
