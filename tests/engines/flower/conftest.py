"""Flower's own processes on this machine, on loopback only."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config


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
