"""Distributed runs in which processes die, fall silent, lie or come back."""

from __future__ import annotations

import pytest
from processes import check_same_head

pytestmark = pytest.mark.slow

EVERYONE = (1, 2, 3, 4)
SAMPLED = ("federate.sample_client_num", 2)


@pytest.fixture
def run(fleet):
    """Start a server and clients 1 to 4: (the fleet, the server, clients by number).

    `actions` by client's number, 0 for the server.
    """

    def start(*settings, actions=()):
        actions = dict(actions)
        one = fleet(*settings)
        server = one.server(actions=actions.get(0, ()))
        clients = {k: one.client(k, actions=actions.get(k, ())) for k in EVERYONE}
        return one, server, clients

    return start


def trained(server) -> list[list[int]]:
    return [record["clients"] for record in server.results["rounds"]]


def check_ended_for(reason: str, server, clients) -> None:
    """Server and `clients` ended with an error that names client 3 and the reason."""
    for worker in (server, *clients):
        assert worker.wait() == 1
        said = worker.output[worker.output.index("error: ") :]
        assert "client 3: " in said
        assert reason in said
        assert "Traceback" not in said


#: When client 3 is killed, and who trains in which round if the run goes on.
SOME, ALL = [1, 2, 4], [1, 2, 3, 4]
LOST = {
    "statistics 0": [SOME, SOME, SOME],
    "prepare 0": [SOME, SOME, SOME],
    "train 1": [SOME, SOME, SOME],
    "train 2": [ALL, SOME, SOME],
    "evaluate 2": [ALL, ALL, SOME],
}


@pytest.mark.parametrize("occasion", ["statistics 0", "train 2"])
def test_a_lost_client_ends_the_run(run, occasion):
    _, server, clients = run(actions={3: {occasion: "die"}})
    assert clients.pop(3).wait() == -9
    check_ended_for("the connection broke off", server, clients.values())
    assert "ggeur.quorum needs 4" in server.output


def test_a_lost_client_that_is_not_drawn_ends_the_run(run):
    _, server, clients = run(*SAMPLED, actions={3: {"evaluate 1": "die"}})
    assert clients.pop(3).wait() == -9
    check_ended_for("the connection broke off", server, clients.values())


@pytest.mark.parametrize("occasion", LOST)
def test_above_the_quorum_the_others_go_on(run, occasion):
    _, server, clients = run("ggeur.quorum", 3, actions={3: {occasion: "die"}})
    assert clients.pop(3).wait() == -9
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 4
    assert trained(server) == LOST[occasion]
    assert "client 3 is gone: the connection broke off" in server.output


#: An MLP head, so that clients are asked for statistics of its hidden layer.
CALIBRATED = (
    "ggeur.mlp_hidden_dim", 6,
    "ggeur.calibrate", "ccvr",
    "ggeur.ccvr.samples", 20,
)  # fmt: skip


@pytest.mark.parametrize("action", ["die", "garbage"])
def test_calibration_goes_on_above_the_quorum(run, action):
    settings = ("ggeur.quorum", 3, *CALIBRATED)
    _, server, clients = run(*settings, actions={3: {"calibrate 4": action}})
    assert clients.pop(3).wait() in (-9, 1)
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 4
    assert trained(server) == [ALL, ALL, ALL]
    assert server.results["calibrated"]["avg"] == server.results["final"]["avg"]


def test_calibration_ends_below_the_quorum_and_the_rounds_stay(run):
    _, server, clients = run(*CALIBRATED, actions={3: {"calibrate 4": "die"}})
    assert clients.pop(3).wait() == -9
    check_ended_for("the connection broke off", server, clients.values())
    assert server.results["status"] == "failed"
    assert trained(server) == [ALL, ALL, ALL]
    assert server.results["calibrated"] is None


def test_a_client_lost_at_the_scores_of_a_closed_form(run):
    settings = ("ggeur.quorum", 3, "ggeur.closed_form", "lda")
    settings += ("ggeur.privacy.min_samples", 1)
    _, server, clients = run(*settings, actions={3: {"evaluate 0": "die"}})
    assert clients.pop(3).wait() == -9
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 4
    assert server.results["final"]["head"] == "closed_form"
    assert trained(server) == []


def test_sampled_clients_above_the_quorum_go_on(run, embedded):
    settings = ("ggeur.quorum", 3, *SAMPLED)
    whole, _ = embedded(*settings)
    drawn = [record["clients"] for record in whole["rounds"]]
    assert 3 in drawn[1]
    _, server, clients = run(*settings, actions={3: {"train 2": "die"}})
    assert clients.pop(3).wait() == -9
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 4
    first, second, third = trained(server)
    assert first == drawn[0]
    assert second == [k for k in drawn[1] if k != 3]
    assert len(third) == 2
    assert 3 not in third


def test_a_client_that_is_lost_after_its_upload(run):
    hold = {"statistics 0": "hold"}
    _, server, clients = run("ggeur.quorum", 3, actions={1: hold})
    server.wait_for("got statistics 0 of 3", "trace")
    clients.pop(3).kill()
    server.wait_for("client 3 is gone")
    clients[1].open_gate()
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 4
    assert sorted(server.results["round0"]["statistics_bytes_up"]) == list("1234")
    assert server.results["round0"]["clients"] == [1, 2, 4]
    assert trained(server) == [[1, 2, 4]] * 3


def test_a_silent_client_ends_the_run(run):
    settings = ("ggeur.deadline.train", 2)
    _, server, clients = run(*settings, actions={3: {"train 2": "hold"}})
    silent = clients.pop(3)
    reason = "no answer (train) within 2 s"
    check_ended_for(reason, server, clients.values())
    assert silent.status() is None
    silent.open_gate()
    check_ended_for(reason, server, [silent])


def test_a_silent_client_costs_one_deadline(run):
    settings = ("ggeur.deadline.train", 2, "ggeur.quorum", 3)
    rounds = ("federate.total_round_num", 6)
    _, server, clients = run(*settings, *rounds, actions={3: {"train 2": "hold"}})
    assert server.wait() == 0
    assert trained(server) == [[1, 2, 3, 4], *[[1, 2, 4]] * 5]
    assert server.output.count("no answer (train) within 2 s") == 1
    clients[3].open_gate()
    assert [client.wait() for client in clients.values()] == [0] * 4


def test_a_late_answer_is_ignored_and_its_client_asked_again(run):
    settings = ("ggeur.deadline.train", 3, "ggeur.quorum", 3)
    actions = {3: {"train 2": "hold"}, 1: {"train 3": "hold"}}
    rounds = ("federate.total_round_num", 4)
    _, server, clients = run(*settings, *rounds, actions=actions)
    clients[1].wait_for("asked train 3", "trace")
    clients[3].open_gate()
    server.wait_for("client 3 is back")
    clients[1].open_gate()
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 5
    assert trained(server) == [[1, 2, 3, 4], [1, 2, 4], [1, 2, 4], [1, 2, 3, 4]]
    ignored = "client 3: an answer (train, round 2) that nobody waits for is ignored"
    assert ignored in server.output
    assert server.output.count("no answer (train) within 3 s") == 1


@pytest.mark.parametrize("settings", [(), SAMPLED], ids=["all", "sampled"])
def test_a_killed_client_that_is_started_again(run, embedded, settings):
    one, server, clients = run(*settings, actions={1: {"evaluate 1": "hold"}})
    server.wait_for("got metrics 1 of 3", "trace")
    clients.pop(3).kill()
    server.wait_for("client 3 is gone")
    again = one.client(3, name="client_3_again")
    server.wait_for("client 3 (domain sketch) has joined", times=2)
    clients[1].open_gate()
    check_same_head(server, [again, *clients.values()], embedded(*settings))


def test_a_client_that_comes_back_and_is_lost_again_is_not_waited_for(run):
    hold = {"train 1": "hold"}
    one, server, clients = run("ggeur.quorum", 3, actions={1: hold, 3: hold})
    clients[3].wait_for("asked train 1", "trace")
    clients.pop(3).kill()
    server.wait_for("client 3 is gone")
    again = one.client(3, name="client_3_again")
    server.wait_for("client 3 (domain sketch) has joined", times=2)
    again.kill()
    server.wait_for("client 3 is gone", times=2)
    clients[1].open_gate()
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 4
    assert trained(server) == [[1, 2, 4]] * 3


def test_a_client_that_comes_back_before_the_server_sees_it_go(run):
    actions = {0: {"checkpoint 1": "hold"}}
    one, server, clients = run("ggeur.quorum", 3, actions=actions)
    server.wait_for("checkpoint 1", "trace")
    clients.pop(3).kill()
    again = one.client(3, name="client_3_again")
    again.wait_for("admitted", "trace")
    server.open_gate()
    assert [w.wait() for w in (server, again, *clients.values())] == [0] * 5
    # Its answer is lost with its stream; it is prepared anew and asked again.
    assert trained(server) == [[1, 2, 3, 4]] * 3


@pytest.mark.parametrize(("checkpoint", "settings"), [(0, ()), (2, ()), (2, SAMPLED)])
def test_a_killed_server_that_is_started_again(
    run, embedded, tmp_path, checkpoint, settings
):
    save = ("federate.save_to", tmp_path / "kept" / "checkpoint")
    die = {f"checkpoint {checkpoint}": "die"}
    one, server, clients = run(*settings, *save, actions={0: die})
    assert server.wait() == -9
    for client in clients.values():
        client.wait_for("joining again")
    again = one.server("federate.restore_from", save[1], name="server_again")
    check_same_head(again, list(clients.values()), embedded(*settings))


def test_everyone_killed_and_started_again(run, embedded, tmp_path):
    save = ("federate.save_to", tmp_path / "checkpoint")
    one, server, clients = run(*save, actions={0: {"checkpoint 1": "die"}})
    assert server.wait() == -9
    for client in clients.values():
        client.kill()
    restore = ("federate.restore_from", save[1])
    again = one.server(*restore, name="server_again")
    clients = [one.client(k, *restore, name=f"client_{k}_again") for k in EVERYONE]
    check_same_head(again, clients, embedded())


def test_a_restored_run_goes_on_without_a_client(run, fleet, tmp_path):
    save = ("federate.save_to", tmp_path / "checkpoint")
    settings = ("ggeur.quorum", 3, "ggeur.deadline.join", 4)
    one, server, clients = run(*settings, *save, actions={0: {"checkpoint 1": "die"}})
    assert server.wait() == -9
    clients.pop(3).kill()
    again = one.server("federate.restore_from", save[1], name="server_again")
    assert [worker.wait() for worker in (again, *clients.values())] == [0] * 4
    assert trained(again) == [[1, 2, 3, 4], [1, 2, 4], [1, 2, 4]]


def test_a_client_whose_training_diverges(fleet):
    one = fleet()
    server = one.server()
    clients = [one.client(k) for k in (1, 2, 4)]
    wild = one.client(3, "train.optimizer.lr", 1e9)
    check_ended_for("training diverged", server, clients)
    assert wild.wait() == 1
    assert "lower train.optimizer.lr" in wild.output
