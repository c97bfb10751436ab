"""What a standalone run leaves: FederatedScope's (FS's) own files and the plugin's.

Tests of engines/federation.py, engines/fs/fs_scores.py and engines/fs/setup.py.
"""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from federatedscope_ggeur.extras.book.federation import Federation

EXAMPLES = Path(__file__).parents[3] / "scripts" / "example_configs"
BEST = [
    "ggeur.closed_form", "auto", "ggeur.init", "closed_form", "ggeur.keep", "best",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(federatedscope, tmp_path_factory, quickstart_file):
    from standalone import as_before, set_up

    folder = tmp_path_factory.mktemp("run")
    settings = ["outdir", folder, "federate.total_round_num", 3]
    with as_before():
        yield set_up(quickstart_file, settings).go()


@pytest.fixture(scope="module")
def quickstart_file():
    return EXAMPLES / "ggeur_quickstart.yaml"


def floats(value):
    if isinstance(value, dict):
        for part in value.values():
            yield from floats(part)
    elif isinstance(value, float):
        yield value


def rounds(run):
    """The raw line of each round; FS writes others beside it."""
    return [
        line["Results_raw"]
        for line in run.lines()
        if line["Role"] == "Server #"
        and line["Round"] != "Final"
        and "Results_raw" in line
    ]


@pytest.mark.slow
def test_the_run_folder_holds_the_files_of_both(finished):
    assert {path.name for path in finished.folder.iterdir()} == {
        "config.yaml", "eval_results.log", "eval_results.raw.gz", "exp_print.log",
        "system_metrics.log",
        "curve.png", "head.safetensors", "metrics.csv", "results.json",
        "private",
    }  # fmt: skip


@pytest.mark.slow
def test_forgetting_deletes_fs_s_files_too(fs, tmp_path):
    """They name clients, their rows and the old scores."""
    book = tmp_path / "book"
    run = fs.run("ggeur.closed_form", "lda", "ggeur.book", str(book))
    assert "client 2: receipt of the book: " in run.log
    left = Federation.load(book).forget(2).said
    assert {path.name for path in run.folder.iterdir()} == {"config.yaml"}
    assert not [line for line in left if str(run.folder) in line]


@pytest.mark.slow
def test_fs_s_results_are_plain_numbers(finished):
    text = (finished.folder / "eval_results.log").read_text()
    assert "np." not in text
    assert "nan" not in text
    found = [x for line in finished.lines() for x in floats(line)]
    assert all(map(math.isfinite, found))
    with gzip.open(finished.folder / "eval_results.raw.gz", "rt") as file:
        raw = [json.loads(line.replace("'", '"')) for line in file]
    assert [line["Round"] for line in raw if "Results_raw" in line][-5:] == [
        "Final", 3, 3, 3, 3,
    ]  # fmt: skip


def test_each_round_has_the_scores_of_every_domain(finished):
    records = finished.results.rounds
    lines = rounds(finished)
    assert len(lines) == len(records) == 3
    for record, line in zip(records, lines):
        for domain, accuracy in record.accuracy.items():
            assert line[f"test_{domain}_acc"] == accuracy
        assert line["test_domain_avg_acc"] == record.avg
        assert line["test_domain_std_acc"] == record.std
        assert line["test_avg_loss"] == record.loss
        assert line["test_acc"] == line["test_correct"] / line["test_total"]
        assert line["test_total"] == 540


def test_test_rows_select_nothing_final_is_the_last_round(finished):
    lines = rounds(finished)
    assert finished.final()["server_global_eval"] == lines[-1]
    assert finished.server.best_results["server_global_eval"] == lines[-1]
    assert finished.server.history_results["Results_raw"]["test_acc"] == [
        line["test_acc"] for line in lines
    ]
    assert "there is no val_loss" not in finished.log  # nobody asked for it
    assert "Find new best result" not in finished.log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "head"),
    [
        (["federate.make_global_eval", True], "trained"),
        (["eval.freq", 2], "trained"),
        (["federate.unseen_clients_rate", 0.25], "trained"),
        (["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 20], "calibrated"),
        ([*BEST, "data.splitter", "iid", "data.splitter_args", []], "closed_form"),
        ([*BEST, "data.splitter_args", [{"alpha": 0.01}]], "trained"),
    ],
    ids=str,
)
def test_final_holds_the_scores_of_the_model_left(fs, settings, head):
    there = fs.run(*settings, "federate.client_num", 8, "ggeur.privacy.min_samples", 1)
    results, final = there.results, there.final()
    assert results.final.head == head
    left = {
        "trained": lambda: results.rounds[-1],
        "calibrated": lambda: results.calibrated,
        "closed_form": lambda: results.round0.closed_form,
    }[head]()
    scores = final["server_global_eval"]
    assert scores["test_domain_avg_acc"] == left.avg
    for domain, accuracy in left.accuracy.items():
        assert scores[f"test_{domain}_acc"] == accuracy
    if "federate.make_global_eval" in settings:
        assert final.keys() == {"server_global_eval"}
        return
    averaged = final["client_summarized_weighted_avg"]
    assert averaged["test_acc"] == left.metrics["test_acc"]
    best = final["client_best_individual"]
    assert best["test_acc"] >= averaged["test_acc"]
    assert best["test_loss"] <= averaged["test_loss"]


@pytest.mark.slow
def test_a_user_s_own_test_acc_means_what_it_means_in_fs(fs):
    there = fs.run("eval.best_res_update_round_wise_key", "test_acc",
                   "federate.make_global_eval", True, "federate.total_round_num", 6,
                   "train.optimizer.lr", 0.5)  # fmt: skip
    lines = rounds(there)
    best = max(lines, key=lambda line: line["test_acc"])
    assert best != lines[-1]
    assert there.final()["server_global_eval"] == best


def test_fs_s_own_reader_takes_them(finished):
    written = yaml.safe_load((finished.folder / "config.yaml").read_text())
    assert written["model"]["out_channels"] == 10
    assert written["federate"]["sample_client_num"] == -1
    from federatedscope.core.auxiliaries.logging import logfile_2_wandb_dict

    with open(finished.folder / "eval_results.log") as file:
        every, ended, _, best = logfile_2_wandb_dict(file, raw_out=False)
    assert ended
    last = rounds(finished)[-1]["test_acc"]
    assert best["server_global_eval/test_acc"] == last
    assert len(every) == 7  # two a round, and the end


def test_bytes_are_in_the_system_metrics(finished):
    text = (finished.folder / "system_metrics.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    by_id = {line["id"]: line for line in lines}
    assert by_id.keys() == {0, 1, 2, 3, 4, "sys_avg", "sys_std"}
    results = finished.results
    sent = sum(by_id[k]["total_upload_bytes"] for k in range(1, 5))
    joins = sent - results.final.bytes_up
    assert 0 < joins < 10_000  # joining counts in no round
    # FS closes its account before the last head goes out.
    assert by_id[0]["total_upload_bytes"] == results.final.bytes_down


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_acc", "king's"])
def test_a_domain_s_name_cannot_pass_for_the_overall_score(fs, embeddings_folder, name):
    (embeddings_folder / "art.npz").rename(embeddings_folder / f"{name}.npz")
    key = ["eval.best_res_update_round_wise_key", "test_acc"]
    there = fs.run("federate.make_global_eval", True, *key)
    lines = rounds(there)
    best = max(lines, key=lambda line: line["test_acc"])
    found = there.server.best_results["server_global_eval"]
    assert found == best
    for record, line in zip(there.results.rounds, lines):
        assert line["test_acc"] == line["test_correct"] / line["test_total"]
        assert record.accuracy[name] in line.values()


@pytest.mark.slow
def test_fs_s_own_files_hold_validation(fs):
    validated = ["data.splits", [0.5, 0.2, 0.3], "eval.split", ["test", "val"]]
    key = ["eval.best_res_update_round_wise_key", "val_loss"]
    there = fs.run(*validated, *key, "eval.freq", 2)
    averaged = [
        line["Results_weighted_avg"]
        for line in there.lines()
        if "Results_weighted_avg" in line
    ]
    # Rounds without scores are in no file of FS's.
    assert [r.evaluated for r in there.results.rounds] == [False, True, True]
    ours = [record.metrics for record in there.results.rounds if record.evaluated]
    assert [line["val_loss"] for line in averaged] == [m["val_loss"] for m in ours]
    best = there.final()["client_summarized_weighted_avg"]
    assert best["val_loss"] == min(metrics["val_loss"] for metrics in ours)


@pytest.mark.slow
def test_many_clients_have_fs_s_fairness_measures(fs):
    there = fs.run("federate.client_num", 12, "data.splitter", "iid",
                   "data.splitter_args", [])  # fmt: skip
    *_, fair = [x["Results_fairness"] for x in there.lines() if "Results_fairness" in x]
    single = [
        line["Results_raw"]["test_acc"]
        for line in there.lines()
        if line["Role"].startswith("Client")
    ]
    assert fair["test_acc_bottom10%"] == min(single)
    assert fair["test_acc_std"] == pytest.approx(np.std(single))
