"""Models that clients keep as their own, in FederatedScope's distributed mode.

Each client's process writes its own model, and the server has none. That the numbers
and files of one process are the embedded engine's: `tests/models/test_own_models.py`.
"""

from __future__ import annotations

import sys

import pytest
from own_models import accuracy, own_words, write_config, write_tests
from processes import Fleet

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.methods import METHODS as REGISTERED
from federatedscope_ggeur.predictor.predictor import Predictor
from federatedscope_ggeur.reporting import read_results

pytestmark = pytest.mark.slow


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
