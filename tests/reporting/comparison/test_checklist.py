"""The checklist: filled in from files, and honest where they say nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from written_runs import made, noisy, write

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.reporting.comparison import Comparison
from federatedscope_ggeur.reporting.comparison.checklist import as_checklist


def answers(text: str) -> dict[str, list[str]]:
    """From each point to its lines."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("- **"):
            point = line.strip("- *")
            found[point] = []
        elif line.startswith("  - "):
            found[point].append(line[4:])
    return found


@pytest.fixture
def filled(study_folder):
    return answers(as_checklist(Comparison.of(study_folder)))


def point(filled, words):
    (found,) = (lines for name, lines in filled.items() if words in name)
    return found


def test_every_point_has_an_answer(filled):
    assert len(filled) == 18
    assert all(lines for lines in filled.values())


def test_what_no_file_can_say_is_left_to_the_authors(filled):
    for words in ("mathematical setting", "downloadable version", "how they were"):
        assert point(filled, words) == ["To be said by the authors."]


def test_hyper_parameters_and_how_they_were_chosen(filled):
    lines = point(filled, "range of hyper-parameters")
    assert lines[0] == (
        "FedAvg, 0.1: lr 0.1 of lr 0.1; lr 10.0; chosen on the validation split of "
        "seed 1 by val\\_acc"
    )


def test_runs_seeds_times_and_machines(filled):
    counts = point(filled, "number of training")
    assert (
        counts[0] == "FedAvg, 0.5 (office, 2 domains, 2 classes): 3 runs, seeds 1, 2, 3"
    )
    assert "study small: 2 runs to tune, beside these" in counts
    assert "study small: 1 runs failed" in counts
    times = point(filled, "average run time")
    assert times[0].endswith(": 12.5 s, CPU 11.0 s")
    machines = point(filled, "computing infrastructure")
    assert machines == [
        "a processor, 2 cores, Linux, no GPU",
        "largest peak memory of a run: 0.30 GB",
        f"all runs of the tables together: {12 * 11 / 3600:.3f} CPU hours",
    ]


def test_data_code_and_versions(filled):
    assert point(filled, "number of examples") == [
        "office, 2 domains, 2 classes: 110 rows; 2 classes; domains Art, Clipart"
    ]
    assert point(filled, "as a hash")[0] == f"`110 rows, {1:064d}`: seeds 1"
    assert point(filled, "Dependencies") == ["versions: python 3.9, torch 2.1"]
    assert point(filled, "precise command") == ["`federatedscope-ggeur --cfg x.yaml`"]
    assert "commit of the folder that runs were started in: `c0ffee`" in point(
        filled, "evaluation code"
    )
    rows = point(filled, "splits into")[-1]
    assert rows.endswith("train 77, val unknown, test 33; 2 clients")


def test_runs_without_provenance(tmp_path):
    """Whatever made them did not say where."""
    config = {"train": {"optimizer": {"lr": 0.1}}}
    for seed in (1, 2):
        results = replace(made(noisy(0.5, seed), seed, config), provenance=None)
        write(tmp_path / str(seed), results)
    filled = answers(as_checklist(Comparison.of(tmp_path)))
    assert all(lines for lines in filled.values())
    machines = point(filled, "computing infrastructure")
    assert machines == ["2 runs do not say where they were made"]
    tuned, rate, _ = point(filled, "range of hyper-parameters")
    assert "to be said by the authors" in tuned
    assert rate == "`train.optimizer.lr`: 0.1"


def test_the_report_writes_it(study_folder, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--out", str(out), "--format", "svg", "--checklist"]
    assert main(["report", str(study_folder), *words]) == 0
    assert str(out / "checklist.md") in capsys.readouterr().out
    text = (out / "checklist.md").read_text(encoding="utf-8")
    assert text.startswith("# Reproducibility checklist")
