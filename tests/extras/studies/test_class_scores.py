"""Counts by class are those of the head that a run left, or none."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace

import pytest

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.extras.studies.class_scores import class_counts
from federatedscope_ggeur.extras.studies.comparison import FoundRun
from federatedscope_ggeur.reporting import Results

pytestmark = pytest.mark.slow  # five runs, and their data read again

KINDS = {
    "trained": [],
    "closed form": ["ggeur.closed_form", "lda"],
    "calibrated": ["ggeur.calibrate", "ccvr"],
    "local": ["ggeur.base_method", "local", "ggeur.steps", "[]"],
    "centralised": ["ggeur.base_method", "centralised", "ggeur.steps", "[]"],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Run folders of one round on the bundled digits, by the kind of their head."""
    outdir = tmp_path_factory.mktemp("class_scores")
    for kind, settings in KINDS.items():
        words = [
            "outdir",
            str(outdir),
            "expname",
            kind,
            "federate.total_round_num",
            "1",
        ]
        words += ["verbose", "0", *settings]
        assert main(["--cfg", "ggeur_quickstart.yaml", *words]) == 0
    logging.getLogger("federatedscope_ggeur").handlers.clear()
    return {kind: outdir / kind for kind in KINDS}


def found(folder):
    results = Results.from_json((folder / "results.json").read_text(encoding="utf-8"))
    return FoundRun(folder, results)


@pytest.mark.parametrize("kind", KINDS)
def test_counts_have_the_accuracy_that_the_run_recorded(folders, kind):
    run = found(folders[kind])
    counts, notes = class_counts([run])
    assert notes == []
    matrix = counts[run.folder]
    tests = {"clean": 135, "inverted": 135, "blurred": 135, "noisy": 135}
    assert matrix.sum() == sum(tests.values())
    record = {
        "calibrated": run.results.calibrated,
        "closed form": run.results.closed_form,
    }.get(kind) or run.results.rounds[-1]
    hits = sum(record.accuracy[domain] * rows for domain, rows in tests.items())
    assert matrix.trace() == round(hits)


@pytest.fixture
def beheaded(folders, tmp_path):
    shutil.copytree(folders["calibrated"], tmp_path / "beheaded")
    (tmp_path / "beheaded" / "head.safetensors").unlink()
    return tmp_path / "beheaded"


def test_runs_without_a_head_are_named(folders, beheaded):
    counts, notes = class_counts([found(beheaded)])
    assert counts == {}
    (note,) = notes
    assert "beheaded" in note
    assert "has no head.safetensors" in note


def test_runs_whose_clients_kept_their_models_elsewhere_are_named(folders, tmp_path):
    shutil.copytree(folders["local"], tmp_path / "server")
    shutil.rmtree(tmp_path / "server" / "heads")
    counts, (note,) = class_counts([found(tmp_path / "server")])
    assert counts == {}
    assert "client 1's own model is not in" in note


def test_a_head_that_is_not_the_runs_is_refused(folders):
    run = found(folders["trained"])
    last = run.results.rounds[-1]
    wrong = {domain: score / 2 for domain, score in last.accuracy.items()}
    rounds = [*run.results.rounds[:-1], replace(last, accuracy=wrong)]
    other = FoundRun(run.folder, replace(run.results, rounds=rounds))
    counts, (note,) = class_counts([other])
    assert counts == {}
    assert "on 'clean' the accuracy of its head differs" in note


def test_data_that_are_gone_are_named(folders):
    run = found(folders["trained"])
    data = {**run.results.config["data"], "type": "embeddings@ggeur", "root": "/gone"}
    results = replace(run.results, config={**run.results.config, "data": data})
    counts, (note,) = class_counts([FoundRun(run.folder, results)], trust=True)
    assert counts == {}
    assert "1 runs have no counts by class" in note


def test_the_report_draws_them(folders, beheaded, tmp_path, capsys):
    words = [str(folders["trained"]), str(beheaded), "--classes"]
    out = tmp_path / "out"
    assert main(["report", *words, "--out", str(out), "--format", "svg"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "has no head.safetensors" in printed
    for name in ("classes.csv", "classes.svg", "confusion.svg"):
        assert (out / name).is_file()
    assert json.dumps("confusion")[1:-1] in (out / "report.html").read_text("utf-8")
