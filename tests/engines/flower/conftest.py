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
def programs(flower):
    """Processes, none of which outlives the test."""
    from federatedscope_ggeur.engines.flower.programs import Programs

    with Programs() as programs:
        yield programs
        for path in sorted(programs.folder.glob("*.log")):  # shown if the test fails
            print(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}")


@pytest.fixture
def federation(programs):
    """Make a federation on this machine."""
    from federatedscope_ggeur.engines.flower.local import LocalFederation

    def make(cfg) -> LocalFederation:
        one = LocalFederation(programs, cfg)
        one.start()
        return one

    return make


@pytest.fixture
def small(config, tmp_path):
    """A short run of three clients, whose files go into the test's folder."""

    def load(*settings):
        rounds = "federate.total_round_num", 2
        return load_config(
            config(*rounds, *settings), ["outdir", str(tmp_path / "out")]
        )

    return load
