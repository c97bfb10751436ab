"""Study files: the runs that they ask for, and what is wrong with them.

Tests of studies/plan.py.
"""

import json
from dataclasses import replace

import pytest
import yaml
from written_runs import check_growth

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.extras.studies.study import (
    Axis,
    Cell,
    Point,
    read_cell,
    read_study,
    to_text,
)
from federatedscope_ggeur.extras.studies.study_file import load_study

LR = "train.optimizer.lr"


@pytest.fixture
def load(tmp_path):
    def read(text, *overrides):
        path = tmp_path / "mine.yaml"
        path.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
        return load_study(path, overrides)

    return read


@pytest.mark.parametrize("first", ["# mine.yaml\n", ""])
def test_a_study_without_a_title_is_called_by_its_file(load, first):
    assert load(f"{first}base: ggeur_quickstart\n").title == "mine"


def test_all_combinations_seed_by_seed(load):
    plan = load(
        """# Table 0: an example
base: ggeur_quickstart
settings: {federate.total_round_num: 3}
axes:
  method:
    FedAvg: {ggeur.steps: []}
    + GGEUR: {ggeur: {steps: [1]}}
  train.optimizer.lr: [0.1, 0.01]
seeds: [3, 4]
columns: [train.optimizer.lr]
baseline: {method: FedAvg}
paper: table2
"""
    )
    assert plan.title == "Table 0: an example"
    assert plan.name == "mine"
    assert plan.named_axes() == [
        Axis("method", ["FedAvg", "+ GGEUR"]),
        Axis(LR, ["0.1", "0.01"]),
    ]
    assert plan.baseline == Point("method", "FedAvg")
    cells = plan.cells()
    assert [(c.labels["method"], c.labels[LR], c.seed) for c in cells] == [
        (method, lr, seed)
        for seed in (3, 4)
        for method in ("FedAvg", "+ GGEUR")
        for lr in ("0.1", "0.01")
    ]
    assert cells[3].settings == {
        "federate.total_round_num": 3, "ggeur.steps": [1], LR: 0.01,
    }  # fmt: skip
    assert cells[3].folder.as_posix() == "ggeur/lr_0.01/seed_3"
    assert plan.cells(9)[0].seed == 9


def test_later_settings_go_before_earlier_ones(load):
    content = {
        "base": "ggeur_quickstart",
        "settings": {LR: 1.0, "ggeur.steps": []},
        "axes": {"a": {"x": {LR: 2.0}}, "b": {"y": {LR: 3.0, "base": "ggeur_digits"}}},
    }
    (cell,) = load(content).cells()
    assert cell.settings == {LR: 3.0, "ggeur.steps": []}
    assert cell.base.name == "ggeur_digits.yaml"
    (cell,) = load(content, LR, "4.5", "ggeur.steps", "[1]").cells()
    assert cell.settings == {LR: 4.5, "ggeur.steps": [1]}


def test_an_axis_cannot_be_set_on_the_command_line(load):
    axes = {LR: [0.1, 0.2], "b": {"y": {"ggeur.steps": []}}}
    with pytest.raises(ConfigError, match=f"command line: {LR} is an axis of this"):
        load({"base": "ggeur_quickstart", "axes": axes}, LR, "0.3")


@pytest.mark.parametrize("name", ["ggeur_quickstart.yaml", "ggeur_quickstart"])
def test_a_base_beside_the_study_goes_before_a_bundled_one(load, tmp_path, name):
    (tmp_path / "ggeur_quickstart.yaml").write_text("seed: 1")
    plan = load({"base": name, "axes": {"a": {"x": {"base": name}}}})
    beside = tmp_path / "ggeur_quickstart.yaml"
    assert plan.base == plan.axes[0][1][0].base == beside
    assert plan.cells()[0].folder.as_posix() == "x/seed_0"


def test_a_base_of_that_very_name_goes_before_one_with_yaml(load, tmp_path):
    for name in ("mine", "mine.yaml"):
        (tmp_path / name).write_text("seed: 1")
    assert load({"base": "mine"}).base == tmp_path / "mine"


def test_tuning_has_every_combination_of_a_row(load):
    prox = {"tune": {"fedprox.mu": [0.1, 1.0]}}
    methods = {"plain": {"ggeur.steps": []}, "prox": prox}
    axes = {"method": methods, "tune": {LR: [0.1, 0.01]}}
    plain, prox = load({"base": "ggeur_quickstart", "axes": axes}).cells()
    assert [c.tuned for c in plain.candidates()] == [{LR: 0.1}, {LR: 0.01}]
    assert [c.tuned for c in prox.candidates()] == [
        {LR: lr, "fedprox.mu": mu} for lr in (0.1, 0.01) for mu in (0.1, 1.0)
    ]
    first = plain.candidates()[0]
    assert first.settings == {"ggeur.steps": [], LR: 0.1}
    assert first.folder.as_posix() == "tuning/plain/lr_0.1/seed_0"
    assert not load({"base": "ggeur_quickstart"}).cells()[0].tune


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "base: is missing"),
        ({"base": "no_such"}, "no_such' does not exist"),
        ({"base": 3}, "base: must be the name of a config"),
        ({"rows": {}}, "unknown key 'rows'; a study has base, settings"),
        ({"seeds": []}, "seeds: must be a list"),
        ({"paper": "table99"}, "paper: the GGEUR paper has no 'table99'"),
        ({"seeds": [1, 1]}, "seeds: must be a list of different"),
        ({"seeds": [-1]}, "none below 0"),
        ({"seeds": [True]}, "seeds: must be"),
        ({"seeds": 3}, r"seeds: must be a list of .* such as \[0, 1, 2\]; got 3"),
        ({"settings": {"seed": 1}}, "settings.seed: differs between the runs"),
        ({"settings": {"outdir": "x"}}, "settings.outdir: .*--out"),
        ({"settings": [1]}, "settings: must hold 'name: value' lines"),
        ({"axes": {"method": [1, 2]}}, "axes.method: an axis with a list of values"),
        ({"axes": {"a.b": []}}, "axes.a.b: the list is empty"),
        ({"axes": {"a.b": [1, 1]}}, "a value appears twice"),
        ({"axes": {"m": {}}}, "axes.m: the axis has no points"),
        ({"axes": {"m": {"x": 3}}}, "axes.m.x: must hold"),
        ({"axes": {"m": {"a b": {}, "a  b": {}}}}, "would share the folder 'a_b'"),
        ({"axes": {"tune": {LR: 0.1}}}, "optimizer.lr: must be a list"),
        ({"axes": {"m": {"x": {}}}, "columns": ["m"]}, "the first axis"),
        ({"axes": {"m": {"x": {}}}, "columns": ["y"]}, "columns: must be a list of"),
        ({"axes": {"m": {"x": {}}}, "baseline": {"m": "y"}}, "has no point 'y'.*: x"),
        ({"baseline": "x"}, "baseline: must be one"),
        ({"workers": 0}, "workers: must be a whole number"),
        ({"paper": 7}, "paper: must be the name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(load, content, message):
    base = {} if "base" in content or not content else {"base": "ggeur_quickstart"}
    with pytest.raises(ConfigError, match=message) as error:
        load({**base, **content})
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("text", ["base: [", "- 1", "base: a\nbase: b"])
def test_what_is_no_study_is_refused(load, text):
    with pytest.raises(ConfigError, match=r"mine\.yaml"):
        load(text)


def test_overrides_come_in_pairs(load):
    with pytest.raises(ConfigError, match=r"'ggeur\.steps' has no value"):
        load({"base": "ggeur_quickstart"}, "ggeur.steps")


# study.json and cell.json: there and back, and everything else refused by name.


CELL = Cell("table2", {"method": "FedAvg"}, 1, {"train.optimizer.lr": 0.1})


def test_there_and_back(tmp_path, study):
    study = replace(study, columns=["alpha"], paper="table2")
    (tmp_path / "study.json").write_text(to_text(study))
    (tmp_path / "cell.json").write_text(to_text(CELL))
    assert read_study(tmp_path) == study
    assert read_cell(tmp_path) == CELL


def test_no_file_is_none(tmp_path):
    assert read_study(tmp_path) is None
    assert read_cell(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "has version None"),
        (f'{{"version": {"9" * 6000}}}', "a number has 6000 digits"),
        ('{"version": ' + "[" * 100_000, "nested too deeply"),
        ('{"version": {"x": 1}}', "has version {'x': 1}"),
        (
            '{"version": 99}',
            "has version 99, but this federatedscope-ggeur reads version 1;",
        ),
        (json.dumps({**json.loads(to_text(CELL)), "seed": "1"}), "seed: expected int"),
        (json.dumps({**json.loads(to_text(CELL)), "more": 1}), "unknown fields: more"),
    ],
)
def test_other_files_are_named(tmp_path, text, message):
    (tmp_path / "cell.json").write_text(text)
    with pytest.raises(DataError, match=message) as error:
        read_cell(tmp_path)
    assert "cell.json" in str(error.value)


def test_comparing_grows_with_the_rounds_and_no_faster(tmp_path):
    check_growth(lambda place: main(["compare", place]), tmp_path)
