"""Secure sums in distributed mode: processes that die at every stage, and come back."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
from processes import TRACE, check_same_head, numbers
from rogues import Member, handshake_of

EVERYONE = (1, 2, 3, 4)
STAGES = ("sum_keys 0", "sum_counts 0", "sum_means 0", "sum_pooled 0")
SETTINGS = (
    "ggeur.privacy.secure_sums", "statistics",
    "ggeur.privacy.secure_sums_radius", 40,
    "ggeur.privacy.secure_sums_max_rows", 4096,
    "ggeur.privacy.secure_sums_fraction_bits", 38,
    "ggeur.closed_form", "lda",
)  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture
def start(fleet, tmp_path):
    """Start a server and clients with a store that outlives them."""

    def begin(*settings, actions=(), everyone=EVERYONE):
        actions = dict(actions)
        store = "ggeur.privacy.secure_sums_store", str(tmp_path / "sums")
        one = fleet(*SETTINGS, *store, *settings)
        server = one.server(actions=actions.get(0, ()))
        clients = {k: one.client(k, actions=actions.get(k, ())) for k in everyone}
        return one, server, clients

    return begin


def check_same(server, clients, expected):
    check_same_head(server, list(clients.values()), expected)
    ours, theirs = numbers(server.results), numbers(expected[0])
    for one in (ours, theirs):
        del one["round0"]["closed_form"]["seconds"]
    assert ours == theirs


def counts_came(server):
    """Whether any client has sent its first masked vector."""
    trace = server.folder / TRACE
    return trace.exists() and "got masked_counts" in trace.read_text()


@pytest.mark.parametrize(
    "settings",
    [
        (),
        (
            "ggeur.init", "closed_form",
            "ggeur.geometry", "pooled",
            "ggeur.prototypes", "others",
            "ggeur.space", "standard",
            "ggeur.round0_window", 3,
        ),
    ],
    ids=["lda", "ggeur"],
)  # fmt: skip
def test_the_same_numbers_as_embedded(start, embedded, settings, tmp_path):
    _, server, clients = start(*settings)
    check_same(server, clients, embedded(*SETTINGS, *settings))
    kept = {path.name for path in (tmp_path / "sums").iterdir()}
    endings = ("sums", "salt", "sums.lock")
    assert kept == {f"client_{k:04d}.{end}" for k in EVERYONE for end in endings}
    assert "keys through the server;" in server.output
    assert server.results["privacy"]["keys"] == "keys through the server"


@pytest.mark.parametrize("occasion", STAGES[1:])
def test_a_client_that_dies_and_comes_back_in_time_changes_nothing(
    start, embedded, occasion
):
    one, server, clients = start(actions={3: {occasion: "die"}})
    assert clients.pop(3).wait() == -9
    server.wait_for("waiting for client 3 to come back")
    clients[3] = one.client(3, name="client_3_again")
    check_same(server, clients, embedded(*SETTINGS))


def test_a_client_that_dies_after_its_upload_sends_the_same_again(start, embedded):
    one, server, clients = start(actions={1: {"sum_counts 0": "hold"}})
    server.wait_for("got masked_counts 0 of 3", "trace")
    clients.pop(3).kill()
    server.wait_for("client 3 is gone")
    again = one.client(3, name="client_3_again")
    server.wait_for("client 3 (domain", times=2)
    clients[1].open_gate()
    check_same(server, {**clients, 3: again}, embedded(*SETTINGS))


@pytest.mark.parametrize("occasion", STAGES)
def test_a_client_that_does_not_come_back_is_named(start, occasion):
    _, server, clients = start(
        "ggeur.deadline.round0", 3, actions={3: {occasion: "die"}}
    )
    assert clients.pop(3).wait() == -9
    assert server.wait() == 1
    said = server.output[server.output.index("error: ") :]
    assert f"round 0, {occasion.split()[0]}: the sum needs an answer of every" in said
    assert "client 3: " in said
    assert "waiting for client 3 to come back" in server.output
    assert [client.wait() for client in clients.values()] == [1, 1, 1]


@pytest.mark.parametrize("moment", ["sum_key 0", "masked_counts 0", "masked_pooled 0"])
def test_a_server_that_starts_again_makes_the_sum_anew(start, embedded, moment):
    one, server, clients = start(
        actions={1: {f"{_REQUEST[moment]} 0": "hold"}},
    )
    server.wait_for(f"got {moment} of 2", "trace")
    server.kill()
    clients[1].open_gate()
    second = one.server(name="server_again")
    check_same(second, clients, embedded(*SETTINGS))


_REQUEST = {
    "sum_key 0": "sum_keys",
    "masked_counts 0": "sum_counts",
    "masked_pooled 0": "sum_pooled",
}


def test_a_client_that_refuses_ends_the_run_at_once(start):
    """Its rows are longer than the settings say; nobody waits for the deadline."""
    _, server, clients = start("ggeur.privacy.secure_sums_radius", 0.5)
    assert server.wait() == 1
    assert "secure_sums_radius 0.5" in server.output
    assert [client.wait() for client in clients.values()] == [1] * 4


def test_one_client_that_refuses_ends_the_wait_for_the_others(start, quickstart, words):
    """Client 1 never answers, and the deadline is a day away."""
    one, server, clients = start(
        "ggeur.deadline.round0",
        86_400,
        actions={1: {"sum_keys 0": "hold"}},
        everyone=(1, 2, 3),
    )
    server.wait_for("has joined", times=3)
    handshake = handshake_of(quickstart, (*words, *map(str, SETTINGS)))
    rogue = Member(one.port, 4, handshake)
    rogue.asked("sum_keys_request")
    clients[1].wait_for("asked sum_keys 0", "trace")
    rogue.say("failed", 0, b"these are other rows than before")
    assert server.wait() == 1
    said = server.output[server.output.index("error: ") :]
    assert "1 of 4 are missing. client 4: these are other rows than before" in said
    clients[1].open_gate()
    assert [client.wait() for client in clients.values()] == [1, 1, 1]


def test_other_rows_over_the_same_store_are_refused(start):
    _, server, clients = start()
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 5
    # Other shares of the same rows, which overlap.
    _, server, clients = start("data.splitter_args", "[{'alpha': 0.5}]")
    assert server.wait() == 1
    assert "overlap with those of an earlier sum" in server.output
    assert 0 not in [client.wait() for client in clients.values()]


def test_a_class_name_put_in_front_and_a_new_label_make_no_new_rows(
    start, embeddings_folder
):
    """With both, no number of a class is what it was, and two sums differ by a row."""
    _, server, clients = start()
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 5
    names = ["before all", *map(str, range(12))]
    (embeddings_folder / "class_names.txt").write_text("\n".join(names))
    for path in embeddings_folder.glob("[aps]*.npz"):
        held = dict(np.load(path))
        held["labels"] = held["labels"] + 1
        held["labels"][0] += 1
        np.savez(path, **held)
    (embeddings_folder / "text.npz").unlink()
    _, server, clients = start()
    assert server.wait() == 1
    assert "overlap with those of an earlier sum" in server.output
    assert not counts_came(server)
    assert 0 not in [client.wait() for client in clients.values()]


@pytest.fixture
def terminals():
    """For each client a terminal, and what types on it."""
    pairs = {k: os.openpty() for k in EVERYONE}
    yield {k: (os.ttyname(there), here) for k, (here, there) in pairs.items()}
    for pair in pairs.values():
        for end in pair:
            os.close(end)


CONFIRM = ("ggeur.privacy.secure_sums_confirm", True)


def test_people_compare_keys_by_telephone(fleet, terminals, embedded, tmp_path):
    store = "ggeur.privacy.secure_sums_store", str(tmp_path / "sums")
    one = fleet(*SETTINGS, *CONFIRM, *store)
    server = one.server()
    clients = {k: one.client(k, terminal=terminals[k][0]) for k in EVERYONE}
    for k in EVERYONE:
        clients[k].wait_for("reads to you")
    assert not counts_came(server)
    for client in clients.values():
        found = re.search(r"read to client (\d): ([0-9a-f ]+)", client.output)
        os.write(terminals[int(found[1])][1], found[2].encode() + b"\n")
    check_same(server, clients, embedded(*SETTINGS))
    assert counts_came(server)
    said = "keys through the server, compared by people"
    assert server.results["privacy"]["keys"] == said
    assert f"privacy: sums; {said};" in server.output


@pytest.mark.parametrize("fault", ["wrong words", "no terminal"])
def test_without_the_right_words_nothing_is_sent(fleet, terminals, tmp_path, fault):
    store = "ggeur.privacy.secure_sums_store", str(tmp_path / "sums")
    one = fleet(*SETTINGS, *CONFIRM, *store)
    server = one.server()
    there = {k: name for k, (name, _) in terminals.items()}
    if fault == "no terminal":
        there[2] = ""
    clients = {k: one.client(k, terminal=there[k]) for k in EVERYONE}
    if fault == "wrong words":
        clients[2].wait_for("reads to you")
        os.write(terminals[2][1], b"dead beef\n" * 3)
    assert clients[2].wait() == 1
    said = "client 2: ggeur.privacy.secure_sums_confirm: "
    assert said in clients[2].output
    if fault == "wrong words":
        for k in (1, 3, 4):  # their people hang up
            clients[k].wait_for("reads to you")
            os.write(terminals[k][1], b"\x04")
    assert server.wait() == 1
    assert said in server.output
    assert not counts_came(server)
    assert 0 not in [client.wait() for client in clients.values()]


def test_sixteen_processes(start, embedded):
    many = ("federate.client_num", 16, "data.splitter_args", "[{'alpha': 10.0}]")
    everyone = range(1, 17)
    _, server, clients = start(*many, everyone=everyone)
    check_same(server, clients, embedded(*SETTINGS, *many))
    assert server.results["round0"]["sums"]["roster"] == list(everyone)
