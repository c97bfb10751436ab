"""``ggeur --cfg FILE``: what is read of the command line."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cli import main


def test_wrong_settings_exit_with_1_and_no_traceback(capsys):
    assert main(["--cfg", "ggeur_quickstart.yaml", "no.such", "1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error:")
    assert "no.such" in error


@pytest.mark.parametrize("before", [[], ["seed", "1"]])
def test_a_key_without_a_value_is_named(capsys, before):
    assert main(["--cfg", "ggeur_quickstart.yaml", *before, "ggeur.steps"]) == 1
    assert "error: 'ggeur.steps' has no value" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["missing.yaml", "no/missing.yaml", "x" * 5000])
def test_a_missing_config_says_where_to_find_some(capsys, name):
    assert main(["--cfg", name]) == 1
    error = capsys.readouterr().err
    assert f"'{name[:40]}" in error
    assert "does not exist" in error
    assert len(error) < 1500  # a long name is cut
    assert "ggeur configs" in error


def test_settings_of_single_clients_need_federatedscope(capsys):
    command = ["--cfg", "ggeur_quickstart.yaml", "--client_cfg", "clients.yaml"]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: --client_cfg: ")
    assert "--engine federatedscope" in error


@pytest.mark.parametrize(
    "words",
    [
        ["--log-level", "loud"],
        ["--quiet", "--log-level", "info"],
        ["seed", "1", "--log-level"],
        ["seed", "1", "--loud"],
    ],
)
def test_wrong_options_are_wrong_usage_wherever_they_stand(capsys, words):
    with pytest.raises(SystemExit) as caught:
        main(["--cfg", "ggeur_quickstart.yaml", *words])
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("ggeur:")


@pytest.mark.slow
def test_a_value_that_looks_like_an_option_is_a_value(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["--cfg", "ggeur_quickstart.yaml", "expname", "--quiet", "--dry-run"]
    assert main(command) == 0
    assert "bytes" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
