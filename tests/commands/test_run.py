"""``federatedscope-ggeur --cfg FILE``: what is read of the command line."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cli import main


def test_wrong_settings_exit_with_1_and_no_traceback(capsys):
    assert main(["--cfg", "ggeur_quickstart.yaml", "no.such", "1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error:")
    assert "no.such" in error


@pytest.mark.parametrize("name", ["missing.yaml", "no/missing.yaml", "x" * 5000])
def test_a_missing_config_says_where_to_find_some(capsys, name):
    assert main(["--cfg", name]) == 1
    error = capsys.readouterr().err
    assert f"'{name[:40]}" in error
    assert "does not exist" in error
    assert len(error) < 1500  # a long name is cut
    assert "federatedscope-ggeur configs" in error


def test_settings_of_single_clients_need_federatedscope(capsys):
    command = ["--cfg", "ggeur_quickstart.yaml", "--client_cfg", "clients.yaml"]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: --client_cfg: ")
    assert "--engine federatedscope" in error
