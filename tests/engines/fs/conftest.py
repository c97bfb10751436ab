"""FederatedScope with the plugin: in this process, and in processes of its own."""

import json
from pathlib import Path

import pytest
from processes import Fleet
from safetensors.torch import load
from standalone import Standalone, as_before, linked

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.fs.command import enable
from federatedscope_ggeur.engines.run import Run


@pytest.fixture
def words(uneven) -> list[str]:
    """Settings of a run of three rounds with four clients."""
    return [
        *uneven,
        "federate.client_num", "4",
        "federate.total_round_num", "3",
        "ggeur.step1_size", "20",
        "ggeur.step2_size", "10",
        "ggeur.privacy.min_samples", "2",
    ]  # fmt: skip


@pytest.fixture
def embedded(quickstart, words):
    """Results and head of the same run on the embedded engine."""

    def run(*settings):
        one = Run(load_config(quickstart, [*words, *map(str, settings)]))
        results = one.follow(lambda record: None)
        return json.loads(results.to_json()), load(one.history.head_bytes())

    return run


@pytest.fixture
def fleet(fork_server, words, quickstart, tmp_path):
    """Make the workers of a run; none of them may outlive the test."""
    fleets = []

    def make(*settings, client_config=None) -> Fleet:
        folder = tmp_path / f"fleet_{len(fleets)}"
        folder.mkdir()
        own = [*words, "ggeur.deadline.join", "600", "ggeur.deadline.return", "0"]
        own += map(str, settings)
        fleets.append(Fleet(fork_server, folder, quickstart, own, client_config))
        return fleets[-1]

    yield make
    left = [name for fleet in fleets for name in fleet.end()]
    print(*fleets)  # shown if the test fails
    assert not left, f"still running at the end of the test: {left}"


@pytest.fixture
def run(fleet):
    """Start a server and clients 1 to 4: the server, clients by number."""

    def start(*settings):
        one = fleet(*settings)
        return one.server(), {k: one.client(k) for k in (1, 2, 3, 4)}

    return start


@pytest.fixture
def fs(federatedscope, config, tmp_path, monkeypatch):
    """Standalone runs in this process, which stays as it was."""
    monkeypatch.chdir(tmp_path)
    with as_before():
        yield Standalone(config, tmp_path)


@pytest.fixture(scope="session")
def enabled(federatedscope, tmp_path_factory) -> Path:
    """A checkout of FS in which the plugin is enabled."""
    checkout = linked(federatedscope, tmp_path_factory.mktemp("enabled"))
    assert enable([str(checkout)]) == 0
    return checkout
