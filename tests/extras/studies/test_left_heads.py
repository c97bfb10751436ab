"""Which runs leave a head in closed form, and which of them the same one."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.extras.studies.class_scores import class_counts
from federatedscope_ggeur.extras.studies.comparison import FoundRun
from federatedscope_ggeur.extras.studies.left_heads import left_head, same_head_notes
from federatedscope_ggeur.reporting import Results

BEST = {"ggeur.closed_form": "auto", "ggeur.init": "closed_form", "ggeur.keep": "best"}
ALONE = {"ggeur.closed_form": "lda"}
VALIDATED = {"data.splits": [0.6, 0.1, 0.3], "eval.split": ["test", "val"]}
WAYS_TO_TRAIN = {
    "FedAvg": {"ggeur.steps": []},
    "SCAFFOLD": {"ggeur.base_method": "scaffold", "train.optimizer.momentum": 0.0},
    "longer": {"federate.total_round_num": 9, "train.local_update_steps": 3},
    "FedProx": {"ggeur.base_method": "fedprox", "fedprox.mu": 0.5},
}


def of(*settings):
    return left_head(
        load_config("ggeur_quickstart", {k: v for s in settings for k, v in s.items()})
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {**BEST, "ggeur.keep": "trained"},
        {"ggeur.calibrate": "ccvr"},
        {"ggeur.base_method": "local"},
    ],
    ids=str,
)
def test_a_run_that_leaves_what_it_trains_has_none(settings):
    assert of(settings) is None


@pytest.mark.parametrize("kind", [BEST, ALONE], ids=["best", "alone"])
@pytest.mark.parametrize("way", WAYS_TO_TRAIN)
def test_how_a_run_trains_is_no_part_of_the_head(kind, way):
    assert of(kind, WAYS_TO_TRAIN[way]) == of(kind) is not None


@pytest.mark.parametrize(
    "other",
    [
        {"ggeur.closed_form": "ridge"},
        {"ggeur.lda.shrinkage": 0.5},
        {"ggeur.privacy.min_samples": 2},
        {"federate.client_num": 8},
        {"data.splitter_args": [{"fraction": 0.1}]},
        {"ggeur.unseen_domains": ["blurred"], "federate.client_num": 3},
        {"ggeur.temperature": "none"},
        {"ggeur.statistics": "compressed", "ggeur.steps": []},
    ],
    ids=str,
)
def test_other_rows_and_other_settings_of_the_head_are_another_head(other):
    assert of(BEST, other).made_of != of(BEST).made_of or (
        of(BEST, other).closed_form != of(BEST).closed_form
    )


@pytest.mark.slow
def test_heads_that_are_said_to_be_one_are_one():
    """Closed forms of runs that train otherwise, to the bit."""
    short = {**BEST, "federate.total_round_num": 1, "data.splitter": "iid"}
    short["data.splitter_args"] = []
    digests = {
        run("ggeur_quickstart", overrides={**short, **way}).final.head_sha256
        for way in ({"ggeur.steps": []}, {}, WAYS_TO_TRAIN["SCAFFOLD"])
    }
    assert len(digests) == 1


def test_notes_say_which_rows_and_what_to_set():
    heads = {of(BEST): ["FedAvg", "GGEUR"], of(ALONE): ["lda"]}
    (note,) = same_head_notes(heads)
    assert "one and the same head, in closed form (auto)" in note
    assert "confounded or much is withheld: FedAvg; GGEUR." in note
    assert "set ggeur.keep: trained" in note
    assert same_head_notes({of(BEST): ["one alone"]}) == []


def test_where_rows_for_validation_choose_the_note_says_so():
    (note,) = same_head_notes({of(BEST, VALIDATED): ["a", "b"]})
    assert "if validation rows prefer it" in note


def test_without_training_there_is_nothing_to_keep():
    (note,) = same_head_notes({of(ALONE): ["a", "b"]})
    assert "and train no head: a; b." in note
    assert "ggeur.closed_form: none" in note


def test_a_row_that_keeps_the_head_of_another_that_is_nothing_else():
    lda = {**BEST, "ggeur.closed_form": "lda"}
    (note,) = same_head_notes({of(lda): ["keeps"], of(ALONE): ["is"]})
    assert "keeps; is" in note


def test_rows_that_are_pooled_are_named_beforehand():
    """Their head can be equal; whether it is, the table says."""
    pooled = {of(BEST, {"ggeur.base_method": "centralised"}): ["centralised"]}
    (note,) = same_head_notes({of(BEST): ["FedAvg"], **pooled})
    assert "pool the clients' data: centralised." in note
    assert "is the same as the head of: FedAvg," in note
    notes = same_head_notes({of(BEST): ["FedAvg", "GGEUR"], **pooled})
    assert len(notes) == 2
    assert same_head_notes(pooled) == []


def test_pooled_rows_whose_head_is_always_another_are_not():
    """A mean for each client or domain; statistics that are cut."""
    pooled = {"ggeur.base_method": "centralised", "ggeur.steps": []}
    mixture = {"ggeur.closed_form": "mixture"}
    compressed = {**ALONE, "ggeur.statistics": "compressed", "ggeur.steps": []}
    for other in (mixture, compressed):
        heads = {of(other): ["FedAvg"], of(other, pooled): ["centralised"]}
        assert same_head_notes(heads) == []


def test_many_rows_are_cut_short():
    (note,) = same_head_notes({of(BEST): [f"row {i}" for i in range(500)]})
    assert "row 19; and 480 more." in note


# Counts by class are those of the head that a run left, or none.


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_runs_without_a_head_are_named(folders, beheaded):
    counts, notes = class_counts([found(beheaded)])
    assert counts == {}
    (note,) = notes
    assert "beheaded" in note
    assert "has no head.safetensors" in note


@pytest.mark.slow
def test_runs_whose_clients_kept_their_models_elsewhere_are_named(folders, tmp_path):
    shutil.copytree(folders["local"], tmp_path / "server")
    shutil.rmtree(tmp_path / "server" / "heads")
    counts, (note,) = class_counts([found(tmp_path / "server")])
    assert counts == {}
    assert "client 1's own model is not in" in note


@pytest.mark.slow
def test_a_head_that_is_not_the_runs_is_refused(folders):
    run = found(folders["trained"])
    last = run.results.rounds[-1]
    wrong = {domain: score / 2 for domain, score in last.accuracy.items()}
    rounds = [*run.results.rounds[:-1], replace(last, accuracy=wrong)]
    other = FoundRun(run.folder, replace(run.results, rounds=rounds))
    counts, (note,) = class_counts([other])
    assert counts == {}
    assert "on 'clean' the accuracy of its head differs" in note


@pytest.mark.slow
def test_data_that_are_gone_are_named(folders):
    run = found(folders["trained"])
    data = {**run.results.config["data"], "type": "embeddings@ggeur", "root": "/gone"}
    results = replace(run.results, config={**run.results.config, "data": data})
    counts, (note,) = class_counts([FoundRun(run.folder, results)], trust=True)
    assert counts == {}
    assert "1 runs have no counts by class" in note


@pytest.mark.slow
def test_the_report_draws_them(folders, beheaded, tmp_path, capsys):
    words = [str(folders["trained"]), str(beheaded), "--classes"]
    out = tmp_path / "out"
    assert main(["report", *words, "--out", str(out), "--format", "svg"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "has no head.safetensors" in printed
    for name in ("classes.csv", "classes.svg", "confusion.svg"):
        assert (out / name).is_file()
    assert json.dumps("confusion")[1:-1] in (out / "report.html").read_text("utf-8")
