"""FederatedScope (FS) standalone: the ways in which its server worker leads a run.

It has calls of its own for the begin of training, for scores, for the end, and for what
follows the last round. So a run on each of these ways is compared with the embedded
engine. That all else is the same is shown once, in `contract/test_whole_runs.py`.
"""

import json
import re

import pytest
import torch
import yaml
from early_stop_oracle import RULES, VALUES, first_stop
from foreign_text import FORGED, hidden_in
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from standalone import as_before, assert_same, set_up

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.extras.book.federation import Federation

ALARM = re.compile(r"\b(?:WARNING|ERROR|CRITICAL)\b.*")
IID = ["data.splitter", "iid", "data.splitter_args", []]
BY_SERVER = ["federate.make_global_eval", True]
VALIDATED = [
    "data.splits", [0.4, 0.4, 0.2],
    "eval.split", ["test", "val"],
    "eval.best_res_update_round_wise_key", "val_loss",
]  # fmt: skip
#: Nothing improves by so much: the run ends after three evaluations.
STOPPING = [
    *VALIDATED, "early_stop.patience", 2, "early_stop.delta", 1e6,
    "federate.total_round_num", 12, "ggeur.privacy.min_samples", 1,
]  # fmt: skip
BEST = [
    *IID, "ggeur.closed_form", "auto", "ggeur.init", "closed_form", "ggeur.keep", "best"
]  # fmt: skip
#: Validation rows choose the shares of both heads.
MEAN = [
    *BEST, "ggeur.closed_form", "ncm", "ggeur.keep", "average", *VALIDATED,
    "train.local_update_steps", 50, "train.optimizer.momentum", 0.9,
    "train.optimizer.lr", 0.5,
    "data.splits", [0.3, 0.55, 0.15],
]  # fmt: skip
#: Of labels and domains; each client has few classes of few domains.
LDS = ["data.splitter", "lds", "data.splitter_args", [{"alpha": 0.01}]]
WAYS = {
    "clients score": ["federate.client_num", 6, "federate.sample_client_num", 2],
    "the server scores": BY_SERVER,
    "some rounds are not scored": ["eval.freq", 2],
    "some clients are unseen": [
        "federate.client_num", 8, "federate.unseen_clients_rate", 0.5
    ],
    "no rounds": ["ggeur.closed_form", "lda"],
    "the better of two heads is left": BEST,
    "the mean of two heads": MEAN,
    "calibrated": ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 20],
    "stops early": STOPPING,
    "stops early between scores": [*STOPPING, "eval.freq", 2],
    "a temperature": [
        *VALIDATED, "data.splits", [0.3, 0.55, 0.15],
        "data.splitter", "domain", "data.splitter_args", [],
    ],
    "no head of all": ["ggeur.base_method", "local"],
    "all rows in one place": ["ggeur.base_method", "centralised"],
    "no such key of FS's": [
        "eval.split", ["test", "val"], "early_stop.patience", 2,
        "eval.best_res_update_round_wise_key", "val_loss",
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_same_numbers_as_embedded(fs, config, way):
    there = fs.run(*WAYS[way])
    assert_same(there, Run(config(*WAYS[way])))
    results = there.results
    stopped = {"stops early": 3, "stops early between scores": 6}.get(way)
    assert results.stopped_early == stopped
    assert results.engine == "federatedscope standalone"
    assert ("there is no val_loss" in there.log) == (way == "no such key of FS's")
    if way == "a temperature":
        assert results.final.calibrated_by == "validation"
    if way in ("clients score", "the server scores"):
        assert not ALARM.findall(there.log)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RULES, VALUES, st.booleans())
def test_a_run_stops_where_fs_s_own_stopper_says(federatedscope, rule, values, larger):
    from federatedscope.core.monitors.early_stopper import EarlyStopper

    theirs = EarlyStopper(rule.patience, rule.delta, rule.mode, larger)
    lengths = range(1, len(values) + 1)
    ends = (n for n in lengths if theirs.track_and_check(values[:n]))
    assert first_stop(rule, values, larger) == next(ends, None)


@pytest.mark.slow
def test_a_domain_may_be_called_anything(fs, embeddings_folder):
    """FS's log has no line more for it, and FS's reader of scores reads it."""
    harmless = fs.run()
    name = f"=art\n{FORGED}\x1b[2J"
    (embeddings_folder / "art.npz").rename(embeddings_folder / f"{name}.npz")
    there = fs.run()
    # FS prints the config's path, which is another one.
    assert len(there.log.splitlines()) == len(harmless.log.splitlines())
    assert not hidden_in(there.log)
    assert not [line for line in there.log.splitlines() if line.startswith(FORGED)]
    said = {key for line in there.lines() for key in line.get("Results_raw", ())}
    assert rf"test_=art\n{FORGED}\x1b[2J_acc" in said


@pytest.mark.slow
@pytest.mark.parametrize("more", [["ggeur.mlp_hidden_dim", 4], BEST], ids=str)
def test_fs_s_models_are_the_head_that_is_left(fs, more):
    """The server's and every client's, though training may have been on another."""
    there = fs.run(*more)
    assert there.results.final.head == ("closed_form" if more is BEST else "trained")
    clients = there.runner.client.values()
    for model in (there.server.models[0], *(client.model for client in clients)):
        state = model.state_dict()
        assert state.keys() == there.model.keys()
        assert all(torch.equal(state[name], t) for name, t in there.model.items())


# What a standalone run leaves: FederatedScope's (FS's) own files and the plugin's.
#


@pytest.fixture(scope="module")
def finished(federatedscope, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    settings = ["outdir", folder, "federate.total_round_num", 3]
    with as_before():
        yield set_up(find_config("ggeur_quickstart.yaml"), settings).go()


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
def test_forgetting_deletes_fs_s_files_too(fs, tmp_path):
    """They name clients, their rows and the old scores."""
    book = tmp_path / "book"
    run = fs.run("ggeur.closed_form", "lda", "ggeur.book", str(book))
    assert "client 2: receipt of the book: " in run.log
    left = Federation.load(book).forget(2).said
    assert {path.name for path in run.folder.iterdir()} == {"config.yaml"}
    assert not [line for line in left if str(run.folder) in line]


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
        (["federate.unseen_clients_rate", 0.25], "trained"),
        (["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 20], "calibrated"),
        (BEST, "closed_form"),
        (MEAN, "calibrated"),
        ([*BEST, *LDS], "trained"),
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
