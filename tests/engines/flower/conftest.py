"""Flower's own processes on this machine, on loopback only."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config


@pytest.fixture(scope="session")
def flower():
    """Skips where Flower cannot be."""
    if sys.version_info < (3, 11):
        pytest.skip("Flower needs Python 3.11 or later")
    pytest.importorskip("flwr", reason="Flower is not installed (the extra [flower])")
    if not Path(sys.executable).with_name("flower-superlink").exists():
        pytest.skip("Flower's programs are not beside this Python")


@pytest.fixture
def federation(flower):
    """Make federations on this machine; none of their processes outlives the test."""
    from federatedscope_ggeur.engines.flower.local import LocalFederation

    made = []

    def make(cfg) -> LocalFederation:
        made.append(LocalFederation(cfg))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        for path in sorted(one.folder.glob("*.log")):  # shown if the test fails
            print(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}")
        one.close()


@pytest.fixture
def small(config, tmp_path):
    """A short run of three clients, whose files go into the test's folder."""

    def load(*settings):
        rounds = "federate.total_round_num", 2
        return load_config(
            config(*rounds, *settings), ["outdir", str(tmp_path / "out")]
        )

    return load
