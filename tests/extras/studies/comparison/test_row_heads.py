"""Which head each row left: in every table, and in every form that it is written in."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from written_runs import made, write

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.yaml_file import to_plain
from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.beside import beside_paper
from federatedscope_ggeur.extras.studies.comparison.sheets import sheet_text, sheets
from federatedscope_ggeur.extras.studies.paper import paper_table
from federatedscope_ggeur.extras.studies.study import Axis, Cell, Study, to_text

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


def test_beside_the_paper_the_head_is_marked_and_what_it_hangs_on_listed(tmp_path):
    best = {"closed_form": "auto", "init": "closed_form", "keep": "best"}
    settings = {f"ggeur.{key}": value for key, value in best.items()}
    config = to_plain(load_config("ggeur_officehome.yaml", settings))
    domains = paper_table("table7").columns[:-2]
    run = made([dict.fromkeys(domains, 0.5)], 1, config)
    run = replace(run, final=replace(run.final, head="closed_form"))
    row, other = "FedAvg (CLIP+MLP) + GGEUR", "FedAvg (CLIP+MLP)"
    unknown = "not in the paper"
    methods = [row, other, unknown]
    study = Study("s", "S", [Axis("method", methods)], [1], paper="table7")
    for name in methods:
        own = dict(config)
        if name == unknown:
            own["ggeur"] = {**config["ggeur"], "base_method": "fedprox"}
        left = replace(run.final, head_sha256="a" * 64)
        one = replace(run, final=left, config=own)
        write(tmp_path / name, one, Cell("s", {"method": name}, 1))
    (tmp_path / "study.json").write_text(to_text(study))
    figures, differing = beside_paper(Comparison.of(tmp_path), "table7")
    assert unknown not in [name for name, _ in figures.rows]
    said = f"equal heads, to the bit, on seed 1: {row}; {other}. These rows share"
    assert said in " ".join(sheet_text(figures).split())
    (_, cells), *_ = figures.rows
    assert str(cells[figures.columns.index("head") - 1]) == "closed form"
    listed = {name: [str(cell) for cell in cells[:2]] for name, cells in differing.rows}
    assert listed["ggeur.closed_form"] == ["none", "auto"]
    assert listed["ggeur.init"] == ["random", "closed_form"]
    assert listed["ggeur.keep"] == ["trained", "best"]
    assert "closed form" in listed["score"][1]
    assert "ggeur.keep" in sheet_text(differing)
