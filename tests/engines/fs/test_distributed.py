"""FederatedScope (FS) distributed, in real processes: what people set up around a run.

TLS and tokens, data of a client's own, a server without data, logs and folders of every
process, and the client that joins again by itself. What a run does, and what becomes of
those who die, are late or lie, is in `contract/`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from own_models import accuracy, own_words, write_config, write_tests
from own_scores import check_own_score
from processes import TRACE, Fleet, check_same_head, numbers
from safetensors.torch import load_file

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run, load_federated_data
from federatedscope_ggeur.engines.sites.transport import make_token
from federatedscope_ggeur.engines.sites.watch import STATUS_FILE
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.methods import METHODS as REGISTERED
from federatedscope_ggeur.predictor.predictor import Predictor
from federatedscope_ggeur.reporting import read_results

pytestmark = pytest.mark.slow

DOMAINS = ("art", "photo", "sketch")
THREE = ("federate.client_num", 3)
#: So little training that no client's score is a round number.
HARD = ("train.optimizer.lr", "0.0003")


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


@pytest.fixture
def own(embeddings_folder, tmp_path, pem):
    """The settings of client k, which has data of its own and a token."""
    secret = b"0123456789abcdef"
    (tmp_path / "secret").write_bytes(secret)

    def words(number: int, token: int) -> list:
        domain = DOMAINS[number - 1]
        root = tmp_path / "own" / domain
        root.mkdir(parents=True, exist_ok=True)
        shutil.copy(embeddings_folder / f"{domain}.npz", root)
        file = tmp_path / f"token{token}"
        file.write_text(make_token(secret, token))
        return [
            "distribute.data_idx", -1,
            "data.root", root,
            "ggeur.domain", domain,
            "ggeur.client_number", number,
            "ggeur.tls.authority", pem / "cert",
            "ggeur.join_token", file,
        ]  # fmt: skip

    return words


def status_of(worker) -> dict:
    return json.loads((worker.run_folder / STATUS_FILE).read_text())


def test_sites_with_data_of_their_own_and_a_server_without(
    fleet, embedded, own, pem, tmp_path, quickstart, words
):
    one = fleet(*THREE, *HARD, "ggeur.share_results", True)
    server = one.server(
        "data.root", tmp_path / "nowhere",
        "ggeur.tls.certificate", pem / "cert",
        "ggeur.tls.key", pem / "key",
        "ggeur.join_secret", tmp_path / "secret",
    )  # fmt: skip
    thief = one.client(3, *own(3, token=1), name="thief")
    assert thief.wait() == 1
    assert "client 3 sent the token of client 1" in thief.output
    clients = [one.client(k, *own(k, token=k)) for k in (1, 2, 3)]
    whole = [*THREE, *HARD, "data.splitter", "iid", "data.splitter_args", "[]"]
    results, model = embedded(*whole)
    check_same_head(server, clients, (results, model))
    assert numbers(server.results) == numbers(results)
    assert server.results["engine"] == "federatedscope distributed"

    log = (server.run_folder / "exp_print.log").read_text()
    assert "client 1 (domain art) has joined" in log
    assert "round 2 of 3 is over, " in log
    status = status_of(server)
    assert (status["state"], status["doing"]) == ("finished", "")
    assert (status["rounds_done"], status["rounds"]) == (3, 3)
    assert status["clients"] == dict.fromkeys("123", "here")
    assert not any("withholds" in note for note in server.results["notes"])

    theirs, head = read_results(server.run_folder).final, "head.safetensors"
    run = load_config(quickstart, [*words, *map(str, whole)])
    held = load_federated_data(run).clients
    for number, client in enumerate(clients, 1):
        log = (client.run_folder / "exp_print.log").read_text()
        assert f"client {number} joins the server at 127.0.0.1:{one.port}" in log
        assert f"client {number}: the run is finished" in log
        assert f"client {number % 3 + 1}" not in log
        # Its own share, which the server cannot know.
        assert f"client {number}: ggeur.privacy.min_samples 2 withholds " in log
        assert status_of(client)["state"] == "finished"
        files = [(one.run_folder / head).read_bytes() for one in (client, server)]
        assert files[0] == files[1]
        left = read_results(client.run_folder)
        assert [info.number for info in left.clients] == [number]
        assert left.final.head_sha256 == theirs.head_sha256
        assert left.shared.accuracy == theirs.accuracy
        check_own_score(client.run_folder, held[number - 1])


def test_an_early_stop_ends_the_run_on_all_sides(run, embedded):
    """Without the server's word nobody gets the table."""
    settings = [
        "data.splits", [0.5, 0.2, 0.3],
        "eval.split", ["test", "val"],
        "eval.best_res_update_round_wise_key", "val_loss",
        "federate.total_round_num", 12,
        "early_stop.patience", 2,
        "early_stop.delta", 1e6,
        "ggeur.privacy.min_samples", 1,
    ]  # fmt: skip
    _, server, clients = run(*settings)
    expected = embedded(*settings)
    check_same_head(server, list(clients.values()), expected)
    assert server.results["stopped_early"] == expected[0]["stopped_early"] == 3
    assert "early_stop ends the run" in server.output
    for client in clients.values():
        assert read_results(client.run_folder).shared is None


def test_a_run_that_is_cut_off_leaves_the_last_model_that_arrived(run, embedded):
    """Client 4 is stopped in round 3, and the server then ends the run."""
    settings = ("ggeur.space", "standard", "eval.freq", "10")
    _, server, clients = run(*settings, actions={4: {"train 3": "hold"}})
    clients[4].wait_for("asked train 3", TRACE)
    os.kill(clients[4].pid, signal.SIGTERM)
    assert all(worker.wait() for worker in (server, *clients.values()))
    _, model = embedded(*settings, "federate.total_round_num", 2)
    for number, worker in clients.items():
        status = read_results(worker.run_folder).status
        assert status == ("interrupted" if number == 4 else "failed")
        left = load_file(worker.run_folder / "head.safetensors")
        assert all(left[name].equal(model[name]) for name in model)


def test_a_client_does_not_write_over_a_state_that_it_does_not_go_on_from(
    fleet, quickstart, words, tmp_path
):
    save = ["federate.save_to", str(tmp_path / "kept"), "ggeur.base_method", "scaffold"]
    Run(load_config(quickstart, [*words, *save])).follow(lambda record: None)
    client = fleet(*save).client(2)
    assert client.wait() == 1
    assert "client_0002" in client.output
    assert "is the state of client 2 in" in client.output


def test_secure_sums_say_which_classes_the_head_lacks(run, tmp_path):
    """Client 1 owns nearly all rows of some classes, of which the mean never goes down
    beside a shape."""
    _, server, clients = run(
        "ggeur.privacy.secure_sums", "statistics",
        "ggeur.privacy.secure_sums_radius", 40,
        "ggeur.privacy.secure_sums_max_rows", 4096,
        "ggeur.privacy.secure_sums_fraction_bits", 38,
        "ggeur.closed_form", "ncm",
        "data.splitter_args", "[{'alpha': 0.1}]",
        "ggeur.privacy.min_samples", 5,
    )  # fmt: skip
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 5
    results = read_results(server.run_folder)
    kept_back = {results.class_names[c] for c in results.round0.sums.kept_back}
    assert kept_back
    for worker in clients.values():
        (note,) = read_results(worker.run_folder).notes
        named = set(note[note.index("(") + 1 : note.index(")")].split(", "))
        assert kept_back <= named


# Models that clients keep as their own, in FederatedScope's distributed mode.
#
# Each client's process writes its own model, and the server has none. That the numbers
# and files of one process are the embedded engine's: `tests/models/test_own_models.py`.


@pytest.fixture
def start(fork_server, quickstart, tmp_path, monkeypatch):
    """Start a run of four clients; the same one on the embedded engine, not begun."""
    monkeypatch.setattr(REGISTERED, "_parts", dict(REGISTERED._parts))
    path, fleets = write_config(tmp_path, quickstart), []

    def begin(method):
        words = own_words(method, tmp_path / "cache")
        folder = tmp_path / "fleet"
        folder.mkdir()
        one = Fleet(fork_server, folder, path, words)
        fleets.append(one)
        server = one.server()
        clients = {k: one.client(k) for k in (1, 2, 3, 4)}
        return server, clients, Run(load_config(path, words))

    yield begin
    for fleet in fleets:
        fleet.end()
        print(fleet)  # shown if the test fails
    sys.modules.pop("halfway_of_a_user", None)


@pytest.mark.parametrize("method", ["fedbn", "local"])
def test_each_client_keeps_its_own(start, method, tmp_path):
    server, clients, here = start(method)
    assert [w.wait() for w in (server, *clients.values())] == [0] * 5
    here.follow(lambda record: None)
    files = write_tests(here.data, tmp_path / "tests")
    scored = read_results(server.run_folder)
    assert scored.final.scored == "clients"
    found = accuracy(here.data, files, lambda number: clients[number].run_folder)
    assert found == pytest.approx(scored.rounds[-1].accuracy, abs=1e-12)
    own = {int(k): share for k, share in scored.final.client_accuracy.items()}
    # The same bytes as on the embedded engine, with the client alone.
    for number, data in here.history.own_bytes():
        (file,) = (clients[number].run_folder / "heads").iterdir()
        assert file.name == f"client_{number}.safetensors"
        assert file.read_bytes() == data
        head = clients[number].run_folder / "head.safetensors"
        assert head.exists() == (method != "local")
        # The client's own score is what the server has of it.
        assert clients[number].results["final"]["accuracy"] == (
            {here.data.clients[number - 1].domain: own[number]}
        )
    assert not (server.run_folder / "heads").exists()
    # The server's folder says where they are, and has none.
    image = [str(files[2][0])]
    with pytest.raises(DataError, match=r"2 \(inverted\)"):
        Predictor(server.run_folder).predict(image)
    with pytest.raises(DataError, match="folder in which the client ran"):
        Predictor(server.run_folder).predict(image, clients=2)
    with pytest.raises(DataError, match=r"1 \(clean\)"):
        Predictor(clients[1].run_folder).predict(image, clients=3)
    # In its own folder a client need not say who it is.
    itself, by_number = (
        list(Predictor(clients[2].run_folder).predict(image, clients=whose))
        for whose in (None, 2)
    )
    assert itself == by_number


# A network that is gone for seconds costs time, not the run.


class Cable:
    """A port on loopback that leads to another one, and can be pulled out."""

    def __init__(self, port: int):
        self._to, self._ends, self._is_in = port, [], True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def pull_out(self) -> None:
        """End all connections; new ones are closed at once."""
        self._is_in = False
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def plug_in(self) -> None:
        self._is_in = True

    def close(self) -> None:
        self.pull_out()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self._is_in:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    pump = threading.Thread(target=_pump, args=(one, other))
                    pump.daemon = True
                    pump.start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def run_behind_a_cable(fleet):
    """Start a server and clients 1 to 4, client 3 behind a cable."""
    cables = []

    def start(*settings, actions=()):
        one = fleet("ggeur.deadline.return", 60, *settings)
        server = one.server()
        server.wait_for("listening on")
        cables.append(Cable(one.port))
        clients = {k: one.client(k) for k in (1, 2, 4)}
        behind = ["distribute.server_port", cables[0].port]
        clients[3] = one.client(3, *behind, actions=dict(actions))
        return server, clients, cables[0]

    yield start
    for cable in cables:
        cable.close()


@pytest.mark.parametrize(
    ("occasion", "method"), [("train 2", "scaffold"), ("evaluate 2", "fedavg")]
)
def test_a_cut_of_seconds_changes_nothing(
    run_behind_a_cable, embedded, occasion, method
):
    """No quorum is set: all clients are needed. What the client did is not done twice,
    also where it keeps a state."""
    settings = ("ggeur.base_method", method)
    server, clients, cable = run_behind_a_cable(*settings, actions={occasion: "hold"})
    clients[3].wait_for(f"asked {occasion}", "trace")
    cable.pull_out()
    server.wait_for("waiting 60 s for client 3 to come back")
    clients[3].open_gate()
    time.sleep(5)
    cable.plug_in()
    check_same_head(server, list(clients.values()), embedded(*settings))


def test_a_stop_of_half_a_minute_is_no_loss(run_behind_a_cable, embedded):
    server, clients, _ = run_behind_a_cable(actions={"train 2": "hold"})
    clients[3].wait_for("asked train 2", "trace")
    os.kill(clients[3].pid, signal.SIGSTOP)
    time.sleep(30)
    os.kill(clients[3].pid, signal.SIGCONT)
    clients[3].open_gate()
    check_same_head(server, list(clients.values()), embedded())
    assert "is gone" not in server.output
