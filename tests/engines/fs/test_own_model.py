"""Models that clients keep as their own, where FederatedScope (FS) runs them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from own_models import METHODS, accuracy, own_words, write_config, write_tests
from processes import TRACE, Fleet
from safetensors.torch import load_file
from standalone import as_before, outcome, set_up

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.methods import METHODS as REGISTERED
from federatedscope_ggeur.predictor.predictor import Predictor
from federatedscope_ggeur.reporting import read_results

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    """The user's method is gone behind the test."""
    monkeypatch.setattr(REGISTERED, "_parts", dict(REGISTERED._parts))
    yield
    sys.modules.pop("halfway_of_a_user", None)


@pytest.fixture
def path(quickstart, tmp_path) -> Path:
    return write_config(tmp_path, quickstart)


@pytest.fixture
def embedded(path, tmp_path):
    """The same run on the embedded engine, not begun."""

    def begun(method):
        return Run(load_config(path, own_words(method, tmp_path / "cache")))

    return begun


@pytest.mark.parametrize("method", METHODS)
def test_standalone_leaves_what_it_scored(
    federatedscope, method, path, embedded, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = own_words(method, tmp_path / "cache")
    here = embedded(method)
    with as_before():
        there = set_up(path, [*words, "outdir", str(tmp_path / "exp")]).go()
    assert outcome(there.results) == outcome(here.follow(lambda record: None))
    files = write_tests(here.data, tmp_path / "tests")
    found = accuracy(here.data, files, lambda number: there.folder)
    assert found == pytest.approx(there.results.rounds[-1].accuracy, abs=1e-12)
    for number, data in here.history.own_bytes():
        file = there.folder / "heads" / f"client_{number}.safetensors"
        assert file.read_bytes() == data


def test_a_standalone_run_that_breaks_off_leaves_them(
    federatedscope, path, embedded, tmp_path, monkeypatch
):
    """In a round's evaluation: those of the round before."""
    monkeypatch.chdir(tmp_path)
    words = [*own_words("fedbn", tmp_path / "cache"), "federate.total_round_num", "3"]
    with as_before():
        there = set_up(path, [*words, "outdir", str(tmp_path / "exp")])
        client, scored = there.runner.client[4], []
        answer = client.trainer.answer

        def stopping(kind, parts):
            if kind.name == "evaluate":
                scored.append(kind)
            if len(scored) == 3:
                raise KeyboardInterrupt
            return answer(kind, parts)

        client.trainer.answer = stopping
        with pytest.raises(KeyboardInterrupt):
            there.go()
        there.server.federation.write_unfinished()
    results = there.results
    assert results.rounds[-1].round == 2
    here = embedded("fedbn")
    files = write_tests(here.data, tmp_path / "tests")
    found = accuracy(here.data, files, lambda number: there.folder)
    assert found == pytest.approx(results.rounds[-1].accuracy, abs=1e-12)


def test_in_a_space_a_client_takes_over_its_own_model(
    federatedscope, path, words, tmp_path, monkeypatch
):
    """What it has at the end is folded back into a model on raw embeddings, once."""
    monkeypatch.chdir(tmp_path)
    own = ["ggeur.plugins", "['halfway_of_a_user']", "ggeur.base_method", "halfway"]
    settings = [*words, *own, "ggeur.space", "standard", "ggeur.steps", "[]"]
    here = Run(load_config(path, settings))
    with as_before():
        there = set_up(path, [*settings, "outdir", str(tmp_path / "exp")]).go()
    assert outcome(there.results) == outcome(here.follow(lambda record: None))
    kept = here.history.own_models()
    for number, worker in there.runner.client.items():
        wanted, found = kept.of(number).state_dict(), worker.model.state_dict()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
        file = there.folder / "heads" / f"client_{number}.safetensors"
        left = load_file(file)
        assert all(torch.equal(left[name], wanted[name]) for name in wanted)


@pytest.fixture
def distributed(fork_server, path, tmp_path):
    fleets = []

    def make(method, *settings) -> Fleet:
        words = own_words(method, tmp_path / "cache")
        folder = tmp_path / "fleet"
        folder.mkdir()
        fleets.append(Fleet(fork_server, folder, path, [*words, *settings]))
        return fleets[-1]

    yield make
    left = [name for fleet in fleets for name in fleet.end()]
    print(*fleets)  # shown if the test fails
    assert not left, f"still running at the end of the test: {left}"


@pytest.mark.parametrize("method", METHODS)
def test_distributed_each_client_keeps_its_own(distributed, method, embedded, tmp_path):
    one = distributed(method)
    server = one.server()
    clients = {number: one.client(number) for number in (1, 2, 3, 4)}
    assert [w.wait() for w in (server, *clients.values())] == [0] * 5
    here = embedded(method)
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


def test_distributed_clients_that_are_cut_off_leave_what_they_scored(
    distributed, embedded, tmp_path
):
    """One by a signal, in round 2; the others by the server, which ends the run."""
    one = distributed("fedbn")
    server = one.server()
    clients = {n: one.client(n) for n in (1, 2, 3)}
    clients[4] = one.client(4, actions={"train 2": "hold"})
    clients[4].wait_for("asked train 2", TRACE)
    os.kill(clients[4].pid, signal.SIGTERM)
    assert all(worker.wait() for worker in (server, *clients.values()))
    scored = read_results(server.run_folder)
    assert scored.rounds[-1].round == 1
    here = embedded("fedbn")
    files = write_tests(here.data, tmp_path / "tests")
    found = accuracy(here.data, files, lambda number: clients[number].run_folder)
    assert found == pytest.approx(scored.rounds[-1].accuracy, abs=1e-12)
