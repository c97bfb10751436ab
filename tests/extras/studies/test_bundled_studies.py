"""The bundled study files: every cell is a config, every row one of its table."""

import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from federatedscope_ggeur import run
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.yaml_file import to_plain
from federatedscope_ggeur.examples import study_files
from federatedscope_ggeur.extras.studies import paper
from federatedscope_ggeur.extras.studies.plan import PlannedCell
from federatedscope_ggeur.extras.studies.study_file import load_study

STUDIES = study_files()


def content(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def configs(path: Path) -> list[tuple[PlannedCell, dict]]:
    """Each cell of the first seed and its checked config, as results.json has it."""
    study = load_study(path)
    return [
        (cell, to_plain(load_config(cell.base, cell.settings)))
        for cell in study.cells(seed=study.seeds[0])
    ]


OF_PAPER = [path for path in STUDIES if "paper" in content(path)]
every_study = pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)


@pytest.mark.slow
@every_study
def test_each_cell_is_a_config_and_a_run_of_its_own(path):
    """No row repeats another one under another name."""
    seen = {}
    for cell, config in configs(path):
        assert config["ggeur"]["use"]
        labels = cell.labels
        other = seen.setdefault(str(sorted(config.items())), labels)
        # FedAvg has no virtual images: Table 2 of FedPG repeats it in every column.
        fedavg = labels.get("strategy") == other.get("strategy") == "FedAvg"
        assert other is labels or fedavg
    assert seen


@every_study
def test_the_head_of_a_file_says_what_it_is_and_takes(path):
    title, *lines = path.read_text(encoding="utf-8").split("\nbase:")[0].splitlines()
    assert re.fullmatch(r"# \S.{20,86}[.]", title)
    text = " ".join(line.lstrip("# ") for line in lines)
    assert f"ggeur study {path.stem}" in text
    assert "Time" in text
    assert max(map(len, path.read_text(encoding="utf-8").splitlines())) <= 88


@every_study
def test_a_file_has_seeds_a_baseline_and_a_title_of_its_own_table(path):
    study = content(path)
    assert len(study["seeds"]) >= 3
    ((axis, point),) = study["baseline"].items()
    assert axis == next(iter(study["axes"]))
    assert point in map(str, study["axes"][axis])
    assert not set(study.get("columns", ())) - set(study["axes"]) - {axis}
    number = re.match(r"(?:.*_)?table(\d+)", path.stem)
    if number:
        assert path.read_text(encoding="utf-8").startswith(f"# Table {number[1]} of")


def test_every_table_of_other_papers_has_a_file():
    fedpg = {f"fedpg_{name}" for name in ("table1", "table2", "table3", "figure7")}
    tables = {f"fedfa_table{n}" for n in (3, *range(5, 13))}
    figures = {f"fedfa_figure{n}" for n in (5, 6, 7)}
    own = {"quickstart_study", "accuracy_against_bytes", "own_embeddings"}
    others = {path.stem for path in STUDIES if path not in OF_PAPER}
    assert others == fedpg | tables | figures | own


@pytest.mark.parametrize("path", OF_PAPER, ids=lambda path: path.stem)
def test_rows_and_columns_are_the_papers_and_set_what_tells_them_apart(path):
    table = paper.paper_table(content(path)["paper"])
    for cell, config in configs(path):
        row, column = table.row_of(config), table.column_of(config)
        # GGEUR, which Tables 5 and 6 lack.
        if row is None:
            assert table.name in ("table5", "table6")
            assert cell.labels == {"method": "FedAvg (CLIP+MLP) + GGEUR"}
        else:
            assert cell.labels["method"] == row
        if len(cell.labels) > 1:
            assert column.split(" ")[-1] == list(cell.labels.values())[-1]


@pytest.mark.parametrize("name", sorted(set(paper.PAPER_TABLES) - {"table8", "table9"}))
def test_no_row_or_column_of_the_paper_is_left_out(name):
    table = paper.paper_table(name)
    found, columns = set(), set()
    for path in OF_PAPER:
        if content(path)["paper"] == name:
            for _, config in configs(path):
                found.add(table.row_of(config))
                columns.add(table.column_of(config))
    assert found - {None} == set(table.rows)
    if any(table.column_settings.values()):
        assert columns == set(table.columns)


@pytest.mark.parametrize("path", OF_PAPER, ids=lambda path: path.stem)
def test_settings_are_those_that_the_paper_says(path):
    """But for what a file's head says is other; the rows without CLIP, and those of
    text, have their own papers' settings."""
    table = paper.paper_table(content(path)["paper"])
    other = {
        "ggeur.scale",
        "data.splitter_args.min_per_class",
        "ggeur.encoder.name",  # open_clip and its size are what a config leaves unsaid
        "ggeur.encoder.image_size",
    }
    if table.name == "table11":
        other.add("federate.total_round_num")
    for cell, config in configs(path):
        if "(CLIP+MLP)" not in cell.labels["method"]:
            continue
        said = {
            **table.setting,
            **table.column_said.get(table.column_of(config), {}),
            **table.row_said.get(table.row_of(config), {}),
        }
        compared = {
            key: value.value
            for key, value in said.items()
            if value.value is not None and "." in key and key not in other
        }
        assert len(compared) > 12
        assert {key: paper.stated_at(config, key) for key in compared} == compared


# Every row of a head runs, on small data in the place of its own.


CLASSES, DIM = 5, 12
#: The domains of the data sets that a head's study is of.
DOMAINS = {
    "digits@ggeur": ("mnist", "usps", "svhn", "syn"),
    "office_caltech@ggeur": ("amazon", "caltech", "dslr", "webcam"),
    "pacs@ggeur": ("photo", "art_painting", "cartoon", "sketch"),
    "office_home@ggeur": ("art", "clipart", "product", "real_world"),
}
ONE_ROUND = {
    "federate.total_round_num": 1,
    "federate.sample_client_num": -1,
    "train.local_update_steps": 1,
    "eval.freq": 1,
    "dataloader.batch_size": 16,
}
HEADS = {
    **ONE_ROUND,
    "data.type": "embeddings@ggeur",
    "data.splits": [0.7, 0.0, 0.3],
    "ggeur.step1_size": 8,
    "ggeur.step2_size": 8,
}


def write_embeddings(folder, domains):
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(CLASSES, DIM))
    folder.mkdir()
    for name in domains:
        labels = np.arange(160) % CLASSES
        rows = centres[labels] + rng.normal(size=DIM) + rng.normal(size=(160, DIM))
        np.savez(folder / f"{name}.npz", features=rows.astype("f4"), labels=labels)
    np.savez(folder / "text.npz", features=centres, logit_scale=20.0)


def small(config, folder):
    """What is set over a cell to make it small."""
    domains = DOMAINS.get(config["data"]["type"], ("all",))
    place = folder / "_".join(domains)
    if not place.exists():
        write_embeddings(place, domains)
    clients = config["federate"]["client_num"]
    return {**HEADS, "data.root": str(place), "federate.client_num": min(clients, 12)}


def distinct(path, place):
    """A run of each row, the first one of the columns, as far as they differ small."""
    found, rows = {}, set()
    for cell, config in configs(path):
        row = next(iter(cell.labels.values()))
        if row in rows:
            continue
        rows.add(row)
        if config["ggeur"]["network"]["name"]:
            continue  # tests/extras/networks trains networks
        if config["ggeur"]["text"]["model"] == "fedtpg":
            continue  # it needs CLIP's text tower: tests/extras/text/test_text_runs.py
        settings = dict(cell.settings)
        if config["data"]["type"] != "digits_quickstart@ggeur":
            settings.update(small(config, place))
        else:
            settings.update(ONE_ROUND)
        made = to_plain(load_config(cell.base, settings))
        made.pop("expname")
        found.setdefault(str(made), (cell, settings))
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where embeddings are, once for all."""
    return tmp_path_factory.mktemp("place")


#: What has run: several studies have the same row of another paper's table.
RAN = set()


@pytest.mark.slow
@every_study
def test_every_row_of_a_head_runs(path, place):
    found = distinct(path, place)
    networks = {config["ggeur"]["network"]["name"] for _, config in configs(path)}
    assert len(found) > 1 or networks != {""}
    for made, (cell, settings) in found.items():
        if made in RAN:
            continue
        RAN.add(made)
        results = run(cell.base, overrides=settings)
        assert results.status == "finished", cell.labels
        assert math.isfinite(results.final.avg), cell.labels
