"""The program: which command is asked for, and how what goes wrong is shown."""

import pytest
from fake_checkout import write_checkout
from own_process import python

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.commands import COMMANDS, GROUPS, configs, find_command

MISSING = "--cfg FILE is missing; write it before the settings"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.b", "3", "--cfg", "X"], MISSING),
        (["seed", "3", "--cfg=X"], MISSING),
        (["a.b", "3"], MISSING),
        (
            ["config"],
            f"unknown command 'config'; the commands are {', '.join(COMMANDS)}",
        ),
        (["--what"], "--what"),
        (["--cfg"], "--cfg"),
        (["--engine", "embedded"], "--cfg FILE is missing"),
        (["--engine", "other", "--cfg", "X"], "invalid choice: 'other'"),
        (["configs", "here", "there"], "unrecognized arguments: there"),
    ],
)
def test_a_mistyped_command_line_is_a_named_error(capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    shown = capsys.readouterr()
    assert message in shown.err.splitlines()[-1]
    assert not shown.out


def test_an_interruption_anywhere_has_no_traceback(monkeypatch, ggeur):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(configs, "example_configs", interrupted)
    assert ggeur("configs", status=130).err == "interrupted\n"


def test_help_and_no_arguments(ggeur):
    shown = ggeur(status=2).out
    for name, command in COMMANDS.items():
        assert f"  {name} {command.takes}" in shown
        assert command.does in shown
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0


def test_the_help_shows_each_command_below_what_it_is_for(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown, at = capsys.readouterr().out.splitlines(), None
    below = {}
    for line in shown:
        at = line[:-1] if line[:-1] in GROUPS else at
        below |= {name: at for name in COMMANDS if line.startswith(f"  {name} ")}
    assert below == {name: command.group for name, command in COMMANDS.items()}
    titles = [line[:-1] for line in shown if line[:-1] in GROUPS]
    assert titles == [g for g in GROUPS if g in below.values()]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_of_its_own(name, capsys):
    with pytest.raises(SystemExit) as caught:
        find_command(name)(["--help"])
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"usage: ggeur {name} ")
    assert COMMANDS[name].does[1:] in shown


ASK = """\
import sys
from federatedscope_ggeur.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as stop:
    status = stop.code
assert not status, status
print("torch" in sys.modules)
"""


CALLS = [["--help"], ["--version"], ["configs"]]
if "enable" in COMMANDS:  # the engine may have been taken out
    CALLS.append(["enable", "FS"])


@pytest.mark.parametrize("words", CALLS)
def test_what_computes_nothing_imports_no_torch(words, tmp_path):
    write_checkout(tmp_path / "FS")
    done = python("-c", ASK, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False", done.stderr
