"""Peers that would keep others out of a run, or hold it up, or fill the server.

Tests of engines/leading.py by real processes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from foreign_text import FORGED, hidden_in
from processes import ROOT, check_same_head
from rogues import Member, handshake_of

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import load_federated_data
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.transport import StreamEnded, make_token

pytestmark = pytest.mark.slow

pytest.importorskip("grpc", reason="distributed mode needs grpcio")

EVERYONE = (1, 2, 3, 4)


@pytest.fixture
def handshake(quickstart, words):
    return handshake_of(quickstart, words)


# Joining.


def test_whoever_joins_first_with_an_absurd_dimension_keeps_nobody_out(
    fleet, embedded, handshake
):
    one = fleet()
    server = one.server()
    server.wait_for("listening on")
    rogue = Member(one.port, 4, replace(handshake, dim=2**40))
    server.wait_for("client 4 (domain art) has joined")
    clients = [one.client(number) for number in (1, 2, 3)]
    assert "dim is 1099511627776 there and 16 here (at most clients)" in rogue.end()
    clients.append(one.client(4))
    check_same_head(server, clients, embedded())
    assert "message from client 4 refused: field 'handshake': dim is" in server.output


def test_nobody_writes_lines_of_others(fleet, handshake):
    """Neither by a domain's name, nor by an error, nor by an encoder's name."""
    one = fleet("ggeur.quorum", 2)
    server = one.server("ggeur.deadline.join", 8)
    server.wait_for("listening on")
    text = f"art\n{FORGED}\r\x1b[2J\u202e{'x' * 20_000}"
    rogue = Member(one.port, 4, handshake, domain=text)
    server.wait_for("client 4 (domain art")
    rogue.say("failed", 0, text.encode())
    server.wait_for("client 4 is gone")
    other = Member(one.port, 3, replace(handshake, encoder=text))
    clients = [one.client(number) for number in (1, 2)]
    assert not hidden_in(other.end())
    assert [worker.wait() for worker in (server, *clients)] == [0, 0, 0]
    for worker in (server, *clients):
        said = re.sub(r"\x1b\[[\d;]+m", "", worker.output)  # FS's own colours
        assert not hidden_in(said)
        lines = said.splitlines()
        assert not [line for line in lines if line.startswith(FORGED)]
        assert max(map(len, lines)) < 12_000


def test_silent_streams_keep_nobody_out(fleet, embedded):
    one = fleet()
    server = one.server()
    server.wait_for("listening on")
    program = ROOT / "tests" / "transport" / "silent_streams.py"
    command = [sys.executable, str(Path(program)), str(one.port), "200"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as silent:
        try:
            server.wait_for(
                "streams are waiting to join, so the oldest, of ipv4:127.0.0.1"
            )
            clients = [one.client(number) for number in EVERYONE]
            check_same_head(server, clients, embedded())
        finally:
            silent.kill()


# Floods, junk and delays.

WAITS = ("ggeur.deadline.train", 2, "ggeur.deadline.round0", 2, "ggeur.quorum", 3)


@pytest.fixture
def start(fleet, handshake):
    """A server, clients 1 to 3, and a member 4 that is up to no good."""

    def make(*settings, actions=()):
        one = fleet(*settings)
        server = one.server(actions=dict(actions))
        server.wait_for("listening on")
        clients = [one.client(number) for number in (1, 2, 3)]
        return server, clients, Member(one.port, 4, handshake)

    return make


def test_junk_after_each_deadline_costs_no_second_one(start):
    server, clients, rogue = start(*WAITS)
    rogue.asked("statistics_request")
    server.wait_for("client 4: no answer (statistics) within 2 s")
    for _ in range(3):
        rogue.say("metrics", 7, b"x")
    assert (
        "barred after 3 invalid messages, the last one: an answer (evaluate"
        in rogue.end()
    )
    assert [worker.wait() for worker in (server, *clients)] == [0] * 4
    assert server.output.count("no answer (") == 1
    assert "client 4 is barred after 3 invalid messages" in server.output


def test_joining_again_and_again_on_one_stream_brings_nobody_back(start):
    server, clients, rogue = start(*WAITS)
    rogue.asked("statistics_request")
    server.wait_for("client 4: no answer (statistics) within 2 s")
    for _ in range(3):
        rogue.say("join_in", 0, b"")
    assert "a second message to join on one connection" in rogue.end()
    assert [worker.wait() for worker in (server, *clients)] == [0] * 4
    assert server.output.count("no answer (") == 1


def test_answers_that_are_always_late_cost_two_deadlines(fleet):
    settings = ("ggeur.deadline.train", 3, "ggeur.quorum", 3)
    one = fleet(*settings, "federate.total_round_num", 6)
    server = one.server()
    clients = [one.client(1, actions={"train 3": "hold"})]
    clients += [one.client(number) for number in (2, 3)]
    slow = {f"train {number}": "slow" for number in range(1, 7)}
    clients.append(one.client(4, actions=slow))
    server.wait_for("client 4 is back")
    clients[0].open_gate()
    assert [worker.wait() for worker in (server, *clients)] == [0, 0, 0, 0, 1]
    assert server.output.count("client 4: no answer (train) within 3 s") == 2
    assert "client 4 is barred after 2 missed deadlines" in server.output
    assert "raise ggeur.deadline.* if the client needs longer" in clients[3].output


def test_a_flood_of_messages_is_cut_off(start):
    server, clients, rogue = start(*WAITS)
    rogue.asked("statistics_request")
    with suppress(StreamEnded):
        for state in range(100_000):
            rogue.say("metrics", state, b"junk")
    assert "barred after 3 invalid messages" in rogue.end()
    assert [worker.wait() for worker in (server, *clients)] == [0] * 4
    assert len(server.output) < 100_000


def peak(server) -> int:
    """Bytes of a process' memory at its peak."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_tensor_that_nobody_asked_for_is_not_even_read(start, fleet):
    last = {"checkpoint 3": "hold"}
    one = fleet(*WAITS, "federate.client_num", 3)
    peaceful = one.server(actions=last)
    clients = [one.client(number) for number in (1, 2, 3)]
    peaceful.wait_for("checkpoint 3", "trace")
    usual = peak(peaceful)
    peaceful.open_gate()
    assert [worker.wait() for worker in (peaceful, *clients)] == [0] * 4
    tensors = {"params": torch.zeros(3), "junk": torch.zeros(70_000_000)}
    numbers = {"client": 4, "round": 1, "steps": 1}
    message = wire.pack("update", numbers, tensors)
    server, clients, rogue = start(*WAITS, actions=last)
    rogue.asked("statistics_request")
    rogue.say("statistics", 0, message)
    server.wait_for("client 4 refused: field 'sizes': a message may have")
    server.wait_for("checkpoint 3", "trace")
    assert peak(server) < 1.3 * usual
    server.open_gate()
    rogue.end()
    assert [worker.wait() for worker in (server, *clients)] == [0] * 4


# Under another client's number. Only a token shows whose it is.


@pytest.mark.parametrize("number", [2, 4])
def test_junk_before_anyone_has_joined_bars_nobody(fleet, embedded, handshake, number):
    one = fleet()
    server = one.server()
    server.wait_for("listening on")
    for _ in range(2):
        Member(one.port, number, handshake, "moon").be_put_out()
    clients = [one.client(k) for k in EVERYONE]
    check_same_head(server, clients, embedded())


@pytest.mark.parametrize("domain", ["art", "moon"])
def test_junk_by_who_joined_last_bars_nobody(fleet, embedded, handshake, domain):
    """Nor does the domain bind that it gave itself."""
    one = fleet()
    server = one.server()
    server.wait_for("listening on")
    clients = [one.client(k) for k in (1, 2, 3)]
    server.wait_for("has joined", times=3)
    rogue = Member(one.port, 4, handshake, domain)
    rogue.asked("statistics_request")
    rogue.be_put_out()
    clients.append(one.client(4))
    check_same_head(server, clients, embedded())
    assert "moon" not in server.results["domains"]


def test_junk_under_a_number_that_is_taken_does_nothing(fleet, embedded, handshake):
    one = fleet()
    server, first = one.server(), one.client(4)
    server.wait_for("client 4 (domain art) has joined")
    for _ in range(4):
        with pytest.raises(StreamEnded, match="client 4 has joined already"):
            Member(one.port, 4, handshake)
    clients = [one.client(k) for k in (1, 2, 3)]
    check_same_head(server, [*clients, first], embedded())


def test_junk_while_a_client_is_away_does_not_keep_it_away(
    fleet, handshake, quickstart, words
):
    one = fleet("ggeur.quorum", 3, "federate.total_round_num", 4)
    server = one.server()
    clients = [one.client(1, actions={"train 2": "hold"})]
    clients += [one.client(number) for number in (2, 3)]
    lost = one.client(4, actions={"train 1": "die"})
    server.wait_for("client 4 is gone")
    for _ in range(4):
        with pytest.raises(StreamEnded, match="declared"):  # it has no rows
            Member(one.port, 4, handshake).asked("train")
    run = load_config(quickstart, words)
    held = load_federated_data(run).clients[3]
    declared = Declared.of(held.train.features, len(held.val), len(held.test))
    for _ in range(2):
        Member(one.port, 4, handshake, declared=declared).be_put_out()
    clients.append(one.client(4, name="client_4_again"))
    server.wait_for("client 4 (domain art) has joined", times=4)
    clients[0].open_gate()
    assert [worker.wait() for worker in (server, *clients)] == [0] * 5
    assert server.results["rounds"][-1]["clients"] == [1, 2, 3, 4]
    assert lost.wait() == -9


def test_deadlines_that_another_missed_bar_nobody(fleet, handshake):
    deadlines = ("ggeur.deadline.round0", 2, "ggeur.deadline.evaluate", 2)
    one = fleet(*deadlines, "ggeur.quorum", 3)
    server = one.server("federate.total_round_num", 5)
    server.wait_for("listening on")
    clients = [one.client(1, actions={"train 1": "hold"})]
    clients += [one.client(2, actions={"train 4": "hold"}), one.client(3)]
    rogue = Member(one.port, 4, handshake)
    rogue.asked("statistics_request")
    server.wait_for("client 4: no answer (statistics) within 2 s")
    clients[0].wait_for("asked train 1", "trace")
    rogue.say("statistics", 0, b"x")
    server.wait_for("client 4 is back")
    clients[0].open_gate()
    server.wait_for("client 4 is barred after 2 missed deadlines")
    assert "barred after 2 missed deadlines" in rogue.end()
    clients.append(one.client(4))
    server.wait_for("client 4 (domain art) has joined", times=2)
    clients[1].open_gate()
    assert [worker.wait() for worker in (server, *clients)] == [0] * 5
    assert server.results["rounds"][-1]["clients"] == [1, 2, 3, 4]


def test_with_tokens_a_client_that_was_put_out_stays_out(fleet, handshake, tmp_path):
    secret = b"0123456789abcdef"
    (tmp_path / "secret").write_bytes(secret)
    for number in EVERYONE:
        (tmp_path / f"token{number}").write_text(make_token(secret, number))
    one = fleet("ggeur.quorum", 3, "ggeur.deadline.join", 5)
    server = one.server("ggeur.join_secret", tmp_path / "secret")
    server.wait_for("listening on")
    token = tmp_path / "token4"
    Member(one.port, 4, handshake, token=token).be_put_out()
    own = one.client(4, "ggeur.join_token", token)
    assert own.wait() == 1
    assert (
        "client 4 refused: field 'client': the server has barred this client"
        in own.output
    )
    clients = [
        one.client(k, "ggeur.join_token", tmp_path / f"token{k}") for k in (1, 2, 3)
    ]
    assert [worker.wait() for worker in (server, *clients)] == [0] * 4
