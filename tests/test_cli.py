"""The commands, as a user types them."""

from __future__ import annotations

import sys

import pytest

from federatedscope_ggeur import cli
from federatedscope_ggeur.cli import main


def test_wrong_settings_exit_with_1_and_no_traceback(capsys):
    assert main(["--cfg", "ggeur_quickstart.yaml", "no.such", "1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error:")
    assert "no.such" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.b", "3", "--cfg", "X"], "--cfg FILE is missing; settings go behind it"),
        (["seed", "3", "--cfg=X"], "--cfg FILE is missing; settings go behind it"),
        (["a.b", "3"], "--cfg FILE is missing; settings go behind it"),
        (
            ["config"],
            "unknown command 'config'; the commands are configs, keys, enable, "
            "disable, token, doctor, embed, inspect, predict",
        ),
        (["--what"], "--what"),
        (["--cfg"], "--cfg"),
        (["--engine", "embedded"], "--cfg FILE is missing"),
        (["--engine", "other", "--cfg", "X"], "invalid choice: 'other'"),
        (["enable", "here", "there"], "unrecognized arguments: there"),
    ],
)
def test_a_mistyped_command_line_is_a_named_error(capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    shown = capsys.readouterr()
    assert message in shown.err.splitlines()[-1]
    assert not shown.out


@pytest.mark.parametrize("name", ["missing.yaml", "no/missing.yaml", "x" * 5000])
def test_a_missing_config_says_where_to_find_some(capsys, name):
    assert main(["--cfg", name]) == 1
    error = capsys.readouterr().err
    assert f"'{name}' does not exist" in error
    assert "federatedscope-ggeur configs" in error


def test_an_interruption_anywhere_has_no_traceback(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_find", interrupted)
    assert main(["--cfg", "ggeur_quickstart.yaml"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_settings_of_single_clients_need_federatedscope(capsys):
    command = ["--cfg", "ggeur_quickstart.yaml", "--client_cfg", "clients.yaml"]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: --client_cfg: ")
    assert "--engine federatedscope" in error


def test_help_and_no_arguments(capsys):
    assert main([]) == 2
    assert "configs" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0


def test_configs_lists_and_copies(tmp_path, capsys):
    assert main(["configs"]) == 0
    assert "ggeur_quickstart.yaml" in capsys.readouterr().out
    assert main(["configs", str(tmp_path / "mine")]) == 0
    copied = tmp_path / "mine" / "ggeur_quickstart.yaml"
    assert copied.is_file()
    copied.write_text("changed")
    assert main(["configs", str(tmp_path / "mine")]) == 1
    assert "ggeur_quickstart.yaml" in capsys.readouterr().err
    assert copied.read_text() == "changed"


@pytest.mark.parametrize("below", ["", "mine"])
def test_configs_into_what_is_no_folder(tmp_path, capsys, below):
    target = tmp_path / "taken"
    target.write_text("kept")
    assert main(["configs", str(target / below)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert str(target) in error
    assert target.read_text() == "kept"


def test_keys_lists_every_setting(capsys):
    assert main(["keys"]) == 0
    assert "ggeur.privacy.min_samples = 5\n" in capsys.readouterr().out


def test_doctor_says_what_is_there(capsys):
    assert main(["doctor"]) == 0
    report = capsys.readouterr().out
    assert "torch: " in report
    assert "FederatedScope" in report


def test_doctor_says_what_is_missing_and_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["doctor"]) == 1
    report = capsys.readouterr().out
    assert "MISSING matplotlib" in report
    assert "pip install matplotlib" in report


def test_token_makes_a_secret_once_and_a_token_for_each_client(tmp_path, capsys):
    pytest.importorskip("grpc")
    secret = tmp_path / "secret.txt"
    assert main(["token", str(secret), "3"]) == 0
    first = capsys.readouterr()
    assert first.out.startswith("3:")
    assert str(secret) in first.err
    assert secret.stat().st_mode & 0o077 == 0
    assert main(["token", str(secret), "3"]) == 0
    again = capsys.readouterr()
    assert (again.out, again.err) == (first.out, "")
    assert main(["token", str(secret), "4"]) == 0
    assert capsys.readouterr().out != first.out
    assert main(["token", str(tmp_path / "nowhere" / "secret"), "1"]) == 1
    assert "nowhere" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["token", str(secret), "0"])
