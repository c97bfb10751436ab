"""Differential privacy in distributed mode: what is spent when processes die."""

from __future__ import annotations

import re

import pytest
from processes import check_same_head

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.ledger import ledger_path, read_ledger
from federatedscope_ggeur.federation.noise import NoiseSettings
from federatedscope_ggeur.geometry.noisy_release import RELEASE_STAGES
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant

EVERYONE = (1, 2, 3, 4)
NOISE = (
    "ggeur.closed_form", "lda",
    "ggeur.privacy.dp.epsilon", 4,
    "ggeur.privacy.dp.rows_per_class", 20,
    "ggeur.privacy.min_samples", 1,
    "ggeur.agreed.class_names", [str(c) for c in range(12)],
)  # fmt: skip
SEED = ("ggeur.privacy.dp.test_seed", 1)
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
    _, server, clients = start(*noise, *SEED)
    check_same_head(server, list(clients.values()), embedded(*NOISE, *noise, *SEED))
    assert charged(tmp_path) == dict.fromkeys(EVERYONE, 1)


def noted(folder, noise, number):
    """What a client has noted of its uploads, by stage."""
    if noise == SUMS:
        path, name, under = folder / "sums", "sums", "sums journal"
    else:
        path, name, under = folder / "ledger", "upload", "release upload"
    file = path / f"client_{number:04d}.{name}"
    if not file.exists():
        return {}
    data = file.read_bytes()
    message = wire.unpack(data, under, f"client {number}")
    return message.tensors_under("vector" if noise == SUMS else "values")


@pytest.fixture
def check_noted(quickstart, words, tmp_path):
    """Check that everyone ended well, with the head that the clients' noted uploads
    add up to. The noise is the system's, so no upload can be made a second time.
    """

    def check(noise, server, clients):
        assert [one.wait() for one in (server, *clients.values())] == [0] * 5
        own = [*words, *map(str, [*NOISE, *noise])]
        going = Run(load_config(quickstart, own))
        plan = going.settings.role.of(NoiseSettings).plan_of(len(EVERYONE))
        uploads = [noted(tmp_path, noise, k) for k in EVERYONE]
        total = {s: sum(one[s] for one in uploads).numpy() for s in RELEASE_STAGES}
        moments = plan.centre(total["moments"])
        release = plan.released(*moments, total["spread"])
        head = LinearDiscriminant().solve_release(release).model.state_dict()
        check_same_head(server, list(clients.values()), ({"rounds": []}, head))
        assert charged(tmp_path) == dict.fromkeys(EVERYONE, 1)

    return check


@pytest.mark.parametrize(
    ("noise", "occasion", "action"),
    [
        (CLIENT, "release_moments 0", "die"),
        (CLIENT, "release_moments 0", "unsent"),
        (CLIENT, "release_spread 0", "unsent"),
        (SUMS, "sum_keys 0", "die"),
        (SUMS, "sum_moments 0", "unsent"),
        (SUMS, "sum_spread 0", "die"),
        (SUMS, "sum_spread 0", "unsent"),
    ],
)
def test_a_client_that_dies_before_its_upload_leaves(
    start, check_noted, noise, occasion, action, tmp_path
):
    """Before or after it has noted and charged it."""
    one, server, clients = start(*noise, actions={3: {occasion: action}})
    assert clients.pop(3).wait() == -9
    before = noted(tmp_path, noise, 3)
    assert (occasion.split("_")[1][:-2] in before) == (action == "unsent")
    server.wait_for("waiting for client 3 to come back")
    clients[3] = one.client(3, name="client_3_again")
    check_noted(noise, server, clients)
    after = noted(tmp_path, noise, 3)
    assert all(after[stage].equal(vector) for stage, vector in before.items())


@pytest.mark.parametrize(
    ("noise", "asked", "answered"),
    [
        (CLIENT, "release_moments", "released_moments"),
        (SUMS, "sum_moments", "masked_moments"),
        (SUMS, "sum_spread", "masked_spread"),
    ],
)
def test_a_client_that_dies_after_its_upload(
    start, check_noted, noise, asked, answered
):
    one, server, clients = start(*noise, actions={1: {f"{asked} 0": "hold"}})
    server.wait_for(f"got {answered} 0 of 3", "trace")
    clients.pop(3).kill()
    server.wait_for("client 3 is gone")
    clients[3] = one.client(3, name="client_3_again")
    server.wait_for("client 3 (domain", times=2)
    clients[1].open_gate()
    check_noted(noise, server, clients)


def test_those_who_sent_are_charged_though_the_run_ends(start, tmp_path):
    stage = {3: {"release_spread 0": "die"}}
    short = "ggeur.deadline.round0", 3
    _, server, clients = start(*CLIENT, *short, actions=stage)
    assert clients.pop(3).wait() == -9
    assert server.wait() == 1
    assert "client 3: " in server.output
    assert [worker.wait() for worker in clients.values()] == [1, 1, 1]
    assert charged(tmp_path) == dict.fromkeys(EVERYONE, 1)


def test_the_server_is_told_why_a_client_stops_without_its_folders(start, tmp_path):
    broken = ledger_path(str(tmp_path / "ledger"), 3)
    broken.parent.mkdir()
    broken.write_text("no ledger")
    _, server, clients = start(*CLIENT)
    assert clients[3].wait() == 1
    assert str(broken) in clients[3].output
    said = f"ggeur.privacy.dp.ledger: the ledger '{broken.name}' cannot be used"
    server.wait_for(f"client 3 is gone: {said}")
    assert server.wait() == 1
    assert [worker.wait() for worker in clients.values()] == [1] * 4
    assert "/ledger/" not in server.output


def test_an_error_of_a_client_names_it_once(start, tmp_path):
    """Its error begins with its number, and so does the server's line on it."""
    limit = ("ggeur.privacy.dp.epsilon_total", 5)
    for left in (0, 1):
        _, server, clients = start(*CLIENT, *limit)
        assert server.wait() == left
        assert [worker.wait() for worker in clients.values()] == [left] * 4
    assert " is gone: another release would exceed" in server.output
    assert not re.search(r"client (\d): client \1", server.output)
