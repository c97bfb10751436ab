"""A user's exchange through Flower: who names it runs it, and nobody is sent it."""

from __future__ import annotations

import sys

import pytest
from exchange_plugin import NAME, NAMED, write_plugin
from hostile_server import SITE, Hostile

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.flower.app_folder import write_app
from federatedscope_ggeur.engines.flower.resident import Resident

pytestmark = pytest.mark.usefixtures("forget_exchange")

QUESTION, ANSWER = "classes_held_request", "classes_held"


@pytest.fixture
def path(quickstart, tmp_path):
    """The quickstart's file, with the plugin beside it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    return write_plugin(folder, quickstart)


def test_a_site_runs_only_the_plugins_that_its_own_file_names(path, tmp_path):
    # In the end another file has loaded it, which does not matter.
    for name, said in ((False, "failed"), (True, ANSWER), (False, "failed")):
        own = tmp_path / f"site {name}"
        own.mkdir(exist_ok=True)
        named = NAMED if name else ()
        cfg = load_config(path, [*SITE, *named], on_fs=True)
        assert NAME in sys.modules or not name
        assert Hostile(Resident(cfg, own)).ask(QUESTION).kind == said


def test_the_app_that_sites_are_sent_carries_no_plugin(path, tmp_path):
    server = ["federate.mode", "distributed", "distribute.role", "server"]
    folder = tmp_path / "app"
    write_app(folder, load_config(path, [*server, *NAMED], on_fs=True))
    files = {p.name: p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert not any("ClassesHeld" in text for text in files.values())
    assert [name for name, text in files.items() if NAME in text] == ["federation.yaml"]
