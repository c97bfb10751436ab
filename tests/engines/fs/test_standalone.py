"""FederatedScope (FS) standalone: the ways in which its server worker leads a run.

It has calls of its own for the begin of training, for scores, for the end, and for what
follows the last round. So a run on each of these ways is compared with the embedded
engine. That all else is the same is shown once, in `contract/test_whole_runs.py`.
"""

from __future__ import annotations

import re

import pytest
import torch
from early_stop_oracle import RULES, VALUES, first_stop
from foreign_text import FORGED, hidden_in
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from standalone import assert_same, outcome

from federatedscope_ggeur.engines.run import Run

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
WAYS = {
    "clients score": ["federate.client_num", 6, "federate.sample_client_num", 2],
    "the server scores": BY_SERVER,
    "some rounds are not scored": ["eval.freq", 2],
    "some clients are unseen": [
        "federate.client_num", 8, "federate.unseen_clients_rate", 0.5
    ],
    "no rounds": ["ggeur.closed_form", "lda"],
    "the better of two heads is left": BEST,
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


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
def test_a_second_run_in_the_process_changes_nothing(fs):
    first, second = fs.run(), fs.run()
    assert outcome(first.results) == outcome(second.results)
    assert first.folder != second.folder
    # What FS's server cannot know of its clients.
    assert first.results.round0.withheld_pairs is None
    assert all(c.train_rows is c.test_rows is None for c in first.results.clients)


@pytest.mark.slow
def test_fs_reports_unseen_clients_apart(fs):
    there = fs.run(*WAYS["some clients are unseen"])
    *_, last = [x for x in there.lines() if "Results_avg_unseen" in x]
    unseen = there.server.unseen_clients_id
    assert len(unseen) == 4
    # FS means over clients here, the lines below are single clients' scores.
    single = {
        int(line["Role"].split("#")[1]): line["Results_raw"]
        for line in there.lines()
        if line["Role"].startswith("Client")
    }
    assert single.keys() == set(range(1, 9))
    for metric in ("test_acc", "test_total"):
        mean = sum(single[number][metric] for number in unseen) / len(unseen)
        assert last["Results_avg_unseen"][metric] == pytest.approx(mean)
    assert "unseen_client_best_individual" in there.lines()[-9]["Results_raw"]


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
