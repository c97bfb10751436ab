"""FederatedScope (FS) distributed, in real processes: what people set up around a run.

TLS and tokens, data of a client's own, a server without data, logs and folders of every
process, and the client that joins again by itself. What a run does, and what becomes of
those who die, are late or lie, is in `contract/`.
"""

import json
import shutil

import pytest
from own_scores import check_own_score
from private_words import SUMS
from processes import check_same_head

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run, load_federated_data
from federatedscope_ggeur.engines.sites.transport import make_token
from federatedscope_ggeur.engines.sites.watch import STATUS_FILE
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.predictor.left_models import LeftModels
from federatedscope_ggeur.predictor.predictor import Predictor
from federatedscope_ggeur.reporting import read_results

pytestmark = pytest.mark.slow

DOMAINS = ("art", "photo", "sketch")
THREE = ("federate.client_num", 3)
#: So little training that no client's score is a round number.
HARD = ("train.optimizer.lr", "0.0003")


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
            "ggeur.tls.authority", pem("authority.pem"),
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
        "ggeur.tls.certificate", pem("server.pem"),
        "ggeur.tls.key", pem("server.key"),
        "ggeur.join_secret", tmp_path / "secret",
    )  # fmt: skip
    thief = one.client(3, *own(3, token=1), name="thief")
    assert thief.wait() == 1
    assert "client 3 sent the token of client 1" in thief.output
    clients = [one.client(k, *own(k, token=k)) for k in (1, 2, 3)]
    whole = [*THREE, *HARD, "data.splitter", "iid", "data.splitter_args", "[]"]
    results, model = embedded(*whole)
    check_same_head(server, clients, (results, model))
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
    server, clients = run(
        *SUMS,
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


def test_each_client_keeps_its_own(run, quickstart, words):
    """Each process writes its own model, and the server has none."""
    settings = ("ggeur.base_method", "local")
    server, clients = run(*settings)
    here = Run(load_config(quickstart, [*words, *settings]))
    here.follow(lambda record: None)
    assert [worker.wait() for worker in (server, *clients.values())] == [0] * 5
    own = read_results(server.run_folder).final.client_accuracy
    for number, data in here.history.own_bytes():
        (file,) = (clients[number].run_folder / "heads").iterdir()
        assert file.name == f"client_{number}.safetensors"
        assert file.read_bytes() == data
        scored = {here.data.clients[number - 1].domain: own[str(number)]}
        assert clients[number].results["final"]["accuracy"] == scored
    assert not (server.run_folder / "heads").exists()
    rows = here.data.clients[1].test.features
    with pytest.raises(DataError, match="folder in which the client ran"):
        LeftModels(server.run_folder).numbers(2, len(rows))
    itself = Predictor(clients[2].run_folder)
    alone, by_number = (
        list(itself.predict_rows(rows, clients=whose)) for whose in (None, 2)
    )
    assert alone == by_number
