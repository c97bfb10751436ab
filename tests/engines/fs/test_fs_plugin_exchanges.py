"""An exchange of a plugin, where FederatedScope (FS) runs it."""

from __future__ import annotations

import json

import pytest
from exchange_plugin import NAMED, write_plugin
from processes import Fleet
from safetensors.torch import load
from standalone import as_before, outcome, set_up

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run

pytestmark = pytest.mark.usefixtures("forget_exchange")


@pytest.fixture
def path(quickstart, tmp_path):
    return write_plugin(tmp_path, quickstart)


@pytest.fixture
def here(path, words):
    """Results and head of the same run on the embedded engine."""
    run = Run(load_config(path, [*words, *NAMED]))
    results = run.follow(lambda record: None)
    return results, load(run.history.head_bytes())


@pytest.fixture
def asking(fork_server, path, words, tmp_path):
    """Workers of a distributed run; none of them may outlive the test."""
    fleets = []

    def make(*settings) -> Fleet:
        own = [*words, "ggeur.deadline.join", "30", *map(str, settings)]
        fleets.append(Fleet(fork_server, tmp_path, path, own))
        return fleets[-1]

    yield make
    print(*fleets)  # shown if the test fails
    assert not [name for fleet in fleets for name in fleet.end()]


def exchanges(results) -> list[dict]:
    """What the exchanges of plugins recorded, in round 0 and in every round."""
    found = results if isinstance(results, dict) else json.loads(results.to_json())
    return [record["exchanges"] for record in (found["round0"], *found["rounds"])]


def test_standalone(federatedscope, path, words, here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with as_before():
        there = set_up(path, [*words, *NAMED, "outdir", str(tmp_path / "exp")]).go()
    results, _ = here
    assert outcome(there.results) == outcome(results)
    assert exchanges(there.results) == exchanges(results)
    assert exchanges(results)[0]["classes_held"]["classes"].keys() == set("1234")


@pytest.mark.slow
def test_distributed(asking, here):
    one = asking(*NAMED)
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3, 4)]
    assert [worker.wait() for worker in (server, *clients)] == [0] * 5
    assert exchanges(server.results) == exchanges(here[0])


@pytest.mark.slow
def test_a_client_that_does_not_name_it_is_told_so_and_answers_nothing(asking):
    one = asking("ggeur.quorum", 3, "ggeur.deadline.join", 10)
    server = one.server(*NAMED)
    server.wait_for("listening on")
    other = one.client(4)
    assert other.wait() == 1
    assert "ggeur.plugins (exchanges) is" in other.output
    clients = [one.client(number, *NAMED) for number in (1, 2, 3)]
    assert [worker.wait() for worker in (server, *clients)] == [0] * 4
    asked = exchanges(server.results)[0]["classes_held"]["classes"]
    assert asked.keys() == set("123")


@pytest.mark.slow
def test_one_that_joins_again_is_caught_up_on(asking, here):
    one = asking(*NAMED, "ggeur.quorum", 3, "federate.total_round_num", 3)
    server = one.server()
    clients = [one.client(1, actions={"train 1": "hold"})]
    clients += [one.client(number) for number in (2, 3)]
    lost = one.client(4, actions={"classes_held 0": "die"})
    server.wait_for("client 4 is gone")
    clients.append(one.client(4, name="client_4_again"))
    server.wait_for("client 4 (domain", times=2)
    clients[0].open_gate()
    assert [worker.wait() for worker in (server, *clients)] == [0] * 5
    assert lost.wait() == -9
    first, *later = exchanges(server.results)
    assert first["classes_held"]["classes"].keys() == set("123")
    assert later[-1] == exchanges(here[0])[-1]
