"""What each client of a distributed run leaves in its own folder."""

from __future__ import annotations

import json
import os
import signal

import pytest
from own_scores import check_own_score
from processes import TRACE, check_same_head
from safetensors.torch import load_file

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import load_federated_data
from federatedscope_ggeur.engines.watch import STATUS_FILE
from federatedscope_ggeur.reporting import read_results

pytestmark = pytest.mark.slow

EVERYONE = (1, 2, 3, 4)
#: So little training that no client's score is a round number.
HARD = ("train.optimizer.lr", "0.0003")


@pytest.fixture
def held(quickstart, words):
    """Who holds which rows, by client."""
    data = load_federated_data(load_config(quickstart, words))
    return {client.number: client for client in data.clients}


def test_every_client_leaves_the_model_and_its_own_scores(fleet, embedded, held):
    one = fleet("ggeur.share_results", True, *HARD)
    server = one.server()
    clients = {number: one.client(number) for number in EVERYONE}
    check_same_head(server, list(clients.values()), embedded(*HARD))
    for number, worker in clients.items():
        check_own_score(worker.run_folder, held[number])
    for worker in (server, *clients.values()):
        status = json.loads((worker.run_folder / STATUS_FILE).read_text())
        assert (status["state"], status["doing"]) == ("finished", "")
    status = json.loads((server.run_folder / STATUS_FILE).read_text())
    assert (status["rounds_done"], status["rounds"]) == (3, 3)
    assert status["clients"] == dict.fromkeys("1234", "here")
    assert "round 2 of 3 is over, " in server.output
    assert "results.json, the head and the curve are in exp/" in server.output
    theirs = read_results(server.run_folder).final
    assert 0.1 < theirs.avg < 0.95
    head = (server.run_folder / "head.safetensors").read_bytes()
    for number, worker in clients.items():
        assert (worker.run_folder / "head.safetensors").read_bytes() == head
        left = read_results(worker.run_folder)
        assert (left.status, left.final.head_sha256) == ("finished", theirs.head_sha256)
        assert [info.number for info in left.clients] == [number]
        assert left.shared.accuracy == theirs.accuracy
        assert (left.shared.avg, left.shared.std) == (theirs.avg, theirs.std)
        assert left.final.head == theirs.head
        assert "the model is in" in worker.output


def test_without_the_servers_word_nobody_gets_the_table(fleet):
    one = fleet("ggeur.closed_form", "lda")
    server, *clients = one.server(), *(one.client(number) for number in EVERYONE)
    assert [worker.wait() for worker in (server, *clients)] == [0] * 5
    for worker in clients:
        left = read_results(worker.run_folder)
        assert left.shared is None
        assert left.final.head == "closed_form"
        assert left.final.calibrated_by == server.results["final"]["calibrated_by"]


@pytest.mark.parametrize(
    "settings",
    [(), ("eval.freq", "10"), ("ggeur.space", "standard", "eval.freq", "10")],
    ids=" ".join,
)
def test_a_run_that_is_cut_off_leaves_the_last_model_that_arrived(
    fleet, embedded, held, settings
):
    """Client 4 is stopped in round 3, and the server then ends the run."""
    one = fleet(*settings)
    server = one.server()
    clients = {number: one.client(number) for number in (1, 2, 3)}
    clients[4] = one.client(4, actions={"train 3": "hold"})
    clients[4].wait_for("asked train 3", TRACE)
    os.kill(clients[4].pid, signal.SIGTERM)
    assert all(worker.wait() for worker in (server, *clients.values()))
    for number, worker in clients.items():
        check_own_score(worker.run_folder, held[number])
    _, model = embedded(*settings, "federate.total_round_num", 2)
    for number, worker in clients.items():
        status = read_results(worker.run_folder).status
        assert status == ("interrupted" if number == 4 else "failed")
        left = load_file(worker.run_folder / "head.safetensors")
        assert all(left[name].equal(model[name]) for name in model)


def test_secure_sums_say_which_classes_the_head_lacks(fleet, held, tmp_path):
    """Client 1 owns nearly all rows of some classes, of which the mean never goes down
    beside a shape."""
    settings = [
        "ggeur.privacy.secure_sums", "statistics",
        "ggeur.privacy.secure_sums_radius", 40,
        "ggeur.privacy.secure_sums_max_rows", 4096,
        "ggeur.privacy.secure_sums_fraction_bits", 38,
        "ggeur.privacy.secure_sums_store", tmp_path / "sums",
        "ggeur.closed_form", "ncm",
        "data.splitter_args", "[{'alpha': 0.1}]",
        "ggeur.privacy.min_samples", 5,
    ]  # fmt: skip
    one = fleet(*settings)
    server = one.server()
    clients = {number: one.client(number) for number in EVERYONE}
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 5
    results = read_results(server.run_folder)
    kept_back = {results.class_names[c] for c in results.round0.sums.kept_back}
    assert kept_back
    for worker in clients.values():
        (note,) = read_results(worker.run_folder).notes
        named = set(note[note.index("(") + 1 : note.index(")")].split(", "))
        assert kept_back <= named


def test_a_server_whose_clients_have_all_left_with_an_error_says_what_they_said(fleet):
    """It does not wait for its deadline: nobody is left to come."""
    one = fleet("federate.client_num", 3, "ggeur.deadline.join", 600)
    server = one.server()
    server.wait_for("listening on")
    clients = [one.client(number, "seed", 77) for number in (1, 2, 3)]
    assert [worker.wait() for worker in (*clients, server)] == [1] * 4
    said = server.output[server.output.index("error: ") :]
    assert "all clients have left with an error" in said
    for number in (1, 2, 3):
        assert f"client {number} refused" in said
    assert "seed is '77' there" in said
    status = json.loads((server.run_folder / STATUS_FILE).read_text())
    assert status["state"] == "failed"
    assert status["clients"]["1"].startswith("lost: message from client 1 refused")
