"""Sums and noisy releases in processes that die: who comes back sends the same again.

The server waits for it, which no other question does, and its journal or ledger
outlives it. All else of these exchanges is shown at their rooms: stages, refusals,
rosters and charges in `tests/federation/exchanges/`, the wait in `test_leading.py`.
"""

from __future__ import annotations

import os
import re

import pytest
from private_words import LDA, NOISE, SUMS
from processes import TRACE, check_same_head

from federatedscope_ggeur.extras.differential_privacy.ledger import (
    ledger_path,
    read_ledger,
)
from federatedscope_ggeur.federation import wire

pytestmark = pytest.mark.slow

EVERYONE = (1, 2, 3, 4)


@pytest.fixture
def kept(tmp_path) -> list[str]:
    """Where clients keep what outlives them."""
    return [
        "ggeur.privacy.secure_sums_store", str(tmp_path / "sums"),
        "ggeur.privacy.dp.ledger", str(tmp_path / "ledger"),
    ]  # fmt: skip


def noted(tmp_path) -> dict:
    """What client 3 has noted of its noisy uploads, by stage."""
    file = tmp_path / "ledger" / "client_0003.upload"
    if not file.exists():
        return {}
    message = wire.unpack(file.read_bytes(), "release upload", "client 3")
    return message.tensors_under("values")


def test_a_client_that_dies_after_its_vector_and_then_the_server(run, kept, embedded):
    """The sum is made anew, with other keys, and is the same."""
    hold = {1: {"sum_counts 0": "hold"}}
    one, server, clients = run(*LDA, *SUMS, *kept[:2], actions=hold)
    server.wait_for("got masked_counts 0 of 3", TRACE)
    clients.pop(3).kill()
    server.wait_for("client 3 is gone")
    clients[3] = one.client(3, name="client_3_again")
    server.wait_for("client 3 (domain", times=2)
    server.kill()
    clients[1].open_gate()
    second = one.server(name="server_again")
    check_same_head(second, list(clients.values()), embedded(*LDA, *SUMS))


@pytest.mark.parametrize("occasion", ["release_moments 0", "release_spread 0"])
def test_a_client_that_dies_when_its_noise_is_drawn(run, kept, tmp_path, occasion):
    """It sends what it has noted, which is charged once."""
    settings = (*LDA, *NOISE, *kept[2:])
    one, server, clients = run(*settings, actions={3: {occasion: "unsent"}})
    assert clients.pop(3).wait() == -9
    before = noted(tmp_path)
    assert occasion.split("_")[1][:-2] in before
    server.wait_for("waiting for client 3 to come back")
    clients[3] = one.client(3, name="client_3_again")
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 5
    after = noted(tmp_path)
    assert all(after[stage].equal(vector) for stage, vector in before.items())
    for k in EVERYONE:
        spent, _ = read_ledger(ledger_path(str(tmp_path / "ledger"), k))
        assert len(spent.entries) == 1


def test_the_server_is_told_why_a_client_stops_without_its_folders(run, kept, tmp_path):
    """It names itself once, and everyone is charged though the run ends."""
    broken = ledger_path(str(tmp_path / "ledger"), 3)
    broken.parent.mkdir()
    broken.write_text("no ledger")
    _, server, clients = run(*LDA, *NOISE, *kept[2:])
    assert clients[3].wait() == 1
    assert str(broken) in clients[3].output
    server.wait_for(
        f"client 3 is gone: ggeur.privacy.dp.ledger: the ledger '{broken.name}"
    )
    assert server.wait() == 1
    assert [worker.wait() for worker in clients.values()] == [1] * 4
    assert "/ledger/" not in server.output
    assert not re.search(r"client (\d): client \1", server.output)


@pytest.fixture
def terminals():
    """For each client a terminal, and what types on it."""
    pairs = {k: os.openpty() for k in EVERYONE}
    yield {k: (os.ttyname(there), here) for k, (here, there) in pairs.items()}
    for pair in pairs.values():
        for end in pair:
            os.close(end)


@pytest.mark.parametrize("typed", ["right", "wrong"])
def test_people_compare_keys_by_telephone(fleet, kept, terminals, embedded, typed):
    """Each at the terminal of its own process; until then no vector goes up."""
    one = fleet(*LDA, *SUMS, *kept[:2], "ggeur.privacy.secure_sums_confirm", True)
    server = one.server()
    clients = {k: one.client(k, terminal=terminals[k][0]) for k in EVERYONE}
    for k in EVERYONE:
        clients[k].wait_for("reads to you")
    trace = server.folder / TRACE
    assert "got masked_counts" not in trace.read_text()
    if typed == "wrong":
        os.write(terminals[2][1], b"dead beef\n" * 3)
        said = "client 2: ggeur.privacy.secure_sums_confirm: "
        assert clients[2].wait() == 1
        assert said in clients[2].output
        for k in (1, 3, 4):  # their people hang up
            os.write(terminals[k][1], b"\x04")
        assert server.wait() == 1
        assert said in server.output
        assert "got masked_counts" not in trace.read_text()
        assert 0 not in [client.wait() for client in clients.values()]
        return
    for client in clients.values():
        found = re.search(r"read to client (\d): ([0-9a-f ]+)", client.output)
        os.write(terminals[int(found[1])][1], found[2].encode() + b"\n")
    check_same_head(server, list(clients.values()), embedded(*LDA, *SUMS))
    keys = "keys through the server, compared by people"
    assert server.results["privacy"]["keys"] == keys
