"""FederatedScope's distributed mode with the plugin, in real processes on loopback."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from processes import check_same_head, numbers

from federatedscope_ggeur.transport import make_token

pytestmark = pytest.mark.slow

EVERYONE = (1, 2, 3, 4)


ALARM = re.compile(r"\b(?:WARNING|ERROR|CRITICAL)\b.*")


def check_same(server, clients, expected):
    """Everyone ended well, with the numbers and the head of the `expected` run."""
    check_same_head(server, clients, expected)
    results, _ = expected
    assert numbers(server.results) == numbers(results)
    assert server.results["engine"] == "federatedscope distributed"


@pytest.mark.parametrize(
    "settings",
    [
        ("ggeur.steps", "[]"),
        ("ggeur.steps", "[1]"),
        ("ggeur.steps", "[1, 2]"),
        ("federate.sample_client_num", 2, "ggeur.round0_window", 3),
        ("federate.make_global_eval", True, "ggeur.unseen_domains", "['sketch']"),
        ("federate.unseen_clients_rate", 0.25, "ggeur.mlp_hidden_dim", 8),
    ],
    ids=lambda settings: " ".join(map(str, settings)),
)
def test_the_same_numbers_as_embedded(fleet, embedded, settings):
    one = fleet(*settings)
    server = one.server()
    clients = [one.client(number) for number in EVERYONE]
    check_same(server, clients, embedded(*settings))
    for worker in (server, *clients):
        assert not ALARM.findall(worker.output)


@pytest.mark.usefixtures("in_units")
def test_each_dimension_has_a_scale_and_rows_are_transformed(fleet, embedded):
    settings = ["ggeur.space", "standard", "data.transform", "[['l2']]"]
    one, expected = fleet(*settings), embedded(*settings)
    server = one.server()
    clients = [one.client(number) for number in EVERYONE]
    check_same(server, clients, expected)
    assert server.results["round0"]["space"]["scales"] == "each"
    assert server.results["encoder"].endswith(", l2")


def test_a_client_that_transforms_its_rows_otherwise_is_refused(fleet):
    one = fleet("data.transform", "[['l2']]", "ggeur.quorum", 3)
    server = one.server("ggeur.deadline.join", 8)
    server.wait_for("listening on")
    other = one.client(4, "data.transform", "[['sqrt_l2']]")
    clients = [one.client(number) for number in (1, 2, 3)]
    for worker in (server, *clients):
        assert worker.wait() == 0
    assert other.wait() != 0
    assert "encoder is 'unknown (precomputed embeddings), sqrt_l2' there" in (
        server.output
    )


def test_clients_that_come_one_by_one_before_the_server(fleet, embedded):
    one = fleet()
    clients = [one.client(number) for number in (3, 4)]
    for client in clients:
        client.wait_for("has been set up")
    server = one.server()
    server.wait_for("has joined", times=2)
    for joined, number in enumerate((2, 1), 3):
        clients.append(one.client(number))
        server.wait_for("has joined", times=joined)
    check_same(server, clients, embedded())


def test_every_worker_leaves_its_own_log(fleet):
    one = fleet("federate.client_num", 3, "federate.total_round_num", 1)
    server, *clients = one.server(), *(one.client(number) for number in (1, 2, 3))
    assert [worker.wait() for worker in (server, *clients)] == [0] * 4
    for number, client in enumerate(clients, 1):
        log = (client.run_folder / "exp_print.log").read_text()
        assert f"client {number} joins the server at 127.0.0.1:{one.port}" in log
        assert f"client {number}: the run is finished" in log
        assert f"client {number % 3 + 1}" not in log
        # Its own share, which the server cannot know.
        assert f"client {number}: ggeur.privacy.min_samples 2 withholds " in log
    assert not any("withholds" in note for note in server.results["notes"])
    log = (server.run_folder / "exp_print.log").read_text()
    assert "client 1 (domain art) has joined" in log


def test_clients_with_data_of_their_own_and_a_server_without(
    fleet, embedded, embeddings_folder, tmp_path
):
    domains = ("art", "photo", "sketch")
    one = fleet("federate.client_num", 3)
    server = one.server("data.root", tmp_path / "nowhere")
    clients = []
    for number, domain in enumerate(domains, 1):
        root = tmp_path / "own" / domain
        root.mkdir(parents=True)
        shutil.copy(embeddings_folder / f"{domain}.npz", root)
        own = ["distribute.data_idx", -1, "data.root", root]
        own += ["ggeur.domain", domain, "ggeur.client_number", number]
        clients.append(one.client(number, *own))
    whole = ["data.splitter", "iid", "data.splitter_args", "[]"]
    check_same(server, clients, embedded("federate.client_num", 3, *whole))


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """A certificate for 127.0.0.1, with its key, that is its own authority."""
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl, which makes the certificate, is missing")
    folder = tmp_path_factory.mktemp("pem")
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2",
        "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key", "-out", "cert",
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def test_tls_and_join_tokens(fleet, embedded, pem, tmp_path):
    secret = b"0123456789abcdef"
    (tmp_path / "secret").write_bytes(secret)
    for number in EVERYONE:
        (tmp_path / f"token{number}").write_text(make_token(secret, number))
    one = fleet()
    server = one.server(
        "ggeur.tls.certificate", pem / "cert",
        "ggeur.tls.key", pem / "key",
        "ggeur.join_secret", tmp_path / "secret",
    )  # fmt: skip

    def client(number, token, name=""):
        own = ["ggeur.tls.authority", pem / "cert"]
        own += ["ggeur.join_token", tmp_path / f"token{token}"]
        return one.client(number, *own, name=name)

    thief = client(4, 1, "thief")
    assert thief.wait() == 1
    assert "client 4 sent the token of client 1" in thief.output
    check_same(server, [client(n, n) for n in EVERYONE], embedded())
