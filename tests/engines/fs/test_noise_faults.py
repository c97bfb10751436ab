"""Differential privacy in distributed mode: what is spent when processes die."""

from __future__ import annotations

import pytest
from processes import check_same_head

from federatedscope_ggeur.federation.ledger import ledger_path, read_ledger

EVERYONE = (1, 2, 3, 4)
NOISE = (
    "ggeur.closed_form", "lda",
    "ggeur.privacy.dp.epsilon", 4,
    "ggeur.privacy.dp.rows_per_class", 20,
    "ggeur.privacy.dp.test_seed", 1,
    "ggeur.privacy.min_samples", 1,
)  # fmt: skip
CLIENT = ("ggeur.privacy.dp.noise", "client")
SUMS = ("ggeur.privacy.secure_sums", "statistics")

pytestmark = pytest.mark.slow


@pytest.fixture
def start(fleet, tmp_path):
    """Start a server and clients with a ledger that outlives them."""

    def begin(*settings, actions=()):
        actions = dict(actions)
        own = "ggeur.privacy.dp.ledger", str(tmp_path / "ledger")
        own += "ggeur.privacy.secure_sums_store", str(tmp_path / "sums")
        one = fleet(*NOISE, *own, *settings)
        server = one.server()
        clients = {k: one.client(k, actions=actions.get(k, ())) for k in EVERYONE}
        return one, server, clients

    return begin


def charged(tmp_path):
    """How many releases each client has been charged for."""
    folder = str(tmp_path / "ledger")
    paths = {k: ledger_path(folder, k) for k in EVERYONE}
    return {
        k: len(read_ledger(path)[0].entries) if path.exists() else 0
        for k, path in paths.items()
    }


@pytest.mark.parametrize("noise", [CLIENT, SUMS], ids=["client", "distributed"])
def test_the_same_head_as_embedded_and_one_charge(start, embedded, noise, tmp_path):
    _, server, clients = start(*noise)
    check_same_head(server, list(clients.values()), embedded(*NOISE, *noise))
    assert charged(tmp_path) == dict.fromkeys(EVERYONE, 1)


@pytest.mark.parametrize(
    ("noise", "occasion"),
    [
        (CLIENT, "release_moments 0"),
        (CLIENT, "release_spread 0"),
        (SUMS, "sum_keys 0"),
        (SUMS, "sum_moments 0"),
        (SUMS, "sum_spread 0"),
    ],
)
def test_a_client_that_dies_and_comes_back_is_charged_once(
    start, embedded, noise, occasion, tmp_path
):
    """Before its first upload, and after it."""
    one, server, clients = start(*noise, actions={3: {occasion: "die"}})
    assert clients.pop(3).wait() == -9
    server.wait_for("waiting for client 3 to come back")
    clients[3] = one.client(3, name="client_3_again")
    check_same_head(server, list(clients.values()), embedded(*NOISE, *noise))
    assert charged(tmp_path) == dict.fromkeys(EVERYONE, 1)


def test_those_who_sent_are_charged_though_the_run_ends(start, tmp_path):
    stage = {3: {"release_spread 0": "die"}}
    short = "ggeur.deadline.round0", 3
    _, server, clients = start(*CLIENT, *short, actions=stage)
    assert clients.pop(3).wait() == -9
    assert server.wait() == 1
    assert "client 3: " in server.output
    assert [worker.wait() for worker in clients.values()] == [1, 1, 1]
    assert charged(tmp_path) == dict.fromkeys(EVERYONE, 1)
