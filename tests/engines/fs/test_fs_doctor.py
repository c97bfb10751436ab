"""What ``ggeur doctor`` says of FederatedScope."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.fs import install

ROOT = Path(__file__).parents[3]


@pytest.fixture
def report(capsys):
    """What the command prints, which finds nothing wrong."""

    def ask() -> str:
        assert main(["doctor"]) == 0
        return capsys.readouterr().out

    return ask


def test_no_federatedscope_anywhere(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "federatedscope", None)
    monkeypatch.delenv("FEDERATEDSCOPE_HOME", raising=False)
    assert "FederatedScope was not found" in report()


def test_it_tells_the_state_and_the_command_that_repairs_it(
    report, found_by_home, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    shown = report()
    assert "plugin: not enabled" in shown
    package = found_by_home.resolve() / "federatedscope"
    assert f"ggeur enable '{package}'" in shown
    install.enable(found_by_home)
    shown = report()
    assert "plugin: enabled\n" in shown
    assert f"run: {install.run_command(found_by_home)}" in shown


def test_it_names_the_packages_that_federatedscope_lacks(
    report, found_by_home, monkeypatch
):
    for module in ("pympler", "google.protobuf"):
        monkeypatch.setitem(sys.modules, module, None)
    missing = report().split("MISSING for FederatedScope: ")[1]
    assert {"pympler", "protobuf"} <= set(missing.splitlines()[0].split(", "))
    assert "federatedscope-ggeur[federatedscope]" in missing


def test_it_reports_a_wrong_switch(report, found_by_home, monkeypatch):
    monkeypatch.setenv("FEDERATEDSCOPE_GGEUR_PROTOBUF", "no")
    assert "must be 'on' or 'off', got 'no'" in report()
