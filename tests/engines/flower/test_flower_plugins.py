"""A user's exchange through Flower: who names it runs it, and nobody is sent it."""

from __future__ import annotations

import sys

import pytest
from exchange_plugin import NAME, NAMED, write_plugin
from hostile_server import SITE, Hostile

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.flower.app_folder import write_app
from federatedscope_ggeur.engines.flower.resident import Resident
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.reporting import read_results

pytestmark = pytest.mark.usefixtures("forget_exchange")

QUESTION, ANSWER = "classes_held_request", "classes_held"


@pytest.fixture
def path(quickstart, tmp_path):
    """The quickstart's file, with the plugin beside it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    return write_plugin(folder, quickstart)


def test_a_site_runs_only_the_plugins_that_its_own_file_names(path, tmp_path):
    for name, said in ((False, "failed"), (True, ANSWER)):
        own = tmp_path / f"site {name}"
        own.mkdir()
        named = NAMED if name else ()
        cfg = load_config(path, [*SITE, *named], on_fs=True)
        assert (NAME in sys.modules) == name
        assert Hostile(Resident(cfg, own)).ask(QUESTION).kind == said


def test_one_that_another_file_has_loaded_is_refused_too(path, tmp_path):
    load_config(path, [*NAMED])
    cfg = load_config(path, SITE, on_fs=True)
    answer = Hostile(Resident(cfg, tmp_path)).ask(QUESTION)
    assert answer.kind == "failed"


def test_the_app_that_sites_are_sent_carries_no_plugin(path, tmp_path):
    server = ["federate.mode", "distributed", "distribute.role", "server"]
    folder = tmp_path / "app"
    write_app(folder, load_config(path, [*server, *NAMED], on_fs=True))
    files = {p.name: p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert not any("ClassesHeld" in text for text in files.values())
    assert [name for name, text in files.items() if NAME in text] == ["federation.yaml"]


@pytest.mark.slow
def test_it_runs_through_flower_as_embedded(federation, path, tmp_path):
    more = ["federate.total_round_num", "2", "outdir", str(tmp_path / "out")]
    cfg = load_config(path, [*more, *NAMED])
    run = Run(cfg)
    here = run.follow(lambda record: None)
    folder = federation(cfg).run()
    there = read_results(folder)
    assert (folder / "head.safetensors").read_bytes() == run.history.head_bytes()
    assert there.round0.exchanges == here.round0.exchanges
    assert there.round0.exchanges.keys() == {"classes_held"}
    assert [r.exchanges for r in there.rounds] == [r.exchanges for r in here.rounds]
