"""``ggeur enable`` and ``disable``."""

from __future__ import annotations

import sys

import pytest

from federatedscope_ggeur.cli import main


def test_the_commands_say_what_to_type(checkout, capsys):
    assert main(["enable", str(checkout)]) == 0
    done, run = capsys.readouterr().out.splitlines()
    assert done.startswith("enabled: ")
    main_file = checkout.resolve() / "federatedscope" / "main.py"
    assert run.startswith(f"run: PYTHONPATH='{checkout.resolve()}")
    assert run.endswith(f"python '{main_file}' --cfg FILE.yaml")
    assert main(["disable", str(checkout)]) == 0
    assert capsys.readouterr().out.startswith("disabled: ")


@pytest.mark.parametrize("command", ["enable", "disable"])
def test_no_federatedscope_anywhere(command, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "federatedscope", None)
    monkeypatch.delenv("FEDERATEDSCOPE_HOME", raising=False)
    assert main([command]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: FederatedScope was not found")
    for way in ("git clone", "pip install", "enable FOLDER"):
        assert way in error
