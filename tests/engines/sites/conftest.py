"""Federations by folder, with settings of a small run."""

from itertools import count
from pathlib import Path

import pytest
from folder_world import NAME, World

from federatedscope_ggeur.cli import main

pytest.importorskip("cryptography")

SMALL = ("ggeur.step1_size", 6, "ggeur.step2_size", 3, "federate.total_round_num", 2)


@pytest.fixture
def world(config, tmp_path, monkeypatch):
    """Make a world of some sites, with these settings."""
    monkeypatch.chdir(tmp_path)  # sides change the folder

    number = count()

    def make(*settings, sites=3, apart=False) -> World:
        folder = tmp_path / f"world_{next(number)}"
        return World(folder, config(*SMALL, *settings), sites, apart)

    return make


@pytest.fixture
def embedded(config, tmp_path):
    """The folder that the embedded engine leaves."""

    def run(*settings) -> Path:
        path = tmp_path / "embedded.yaml"
        path.write_text(config(*SMALL, *settings).dump())
        place = ["outdir", str(tmp_path / "embedded"), "expname", NAME]
        assert not main(["--cfg", str(path), *place])
        return tmp_path / "embedded" / NAME

    return run
