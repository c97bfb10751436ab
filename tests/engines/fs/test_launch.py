"""FederatedScope's own main, run by this package's command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from federatedscope_ggeur.cli import main

ROOT = Path(__file__).parents[3]
PATIENCE = 600.0  # s
TOY = """\
data: {type: toy}
model: {type: lr}
federate: {client_num: 2, total_round_num: 5}
eval: {count_flops: False}
"""
CLIENTS = "\n".join(
    f"client_{i}: {{train: {{local_update_steps: {i + 1}, optimizer: {{lr: 0.1}}}}}}"
    for i in range(3)
)


def run(words: list[str], home: Path, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "FEDERATEDSCOPE_HOME": str(home),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@pytest.fixture
def toy(tmp_path) -> Path:
    (tmp_path / "toy.yaml").write_text(TOY)
    return tmp_path


@pytest.fixture
def home(federatedscope) -> Path:
    return Path(federatedscope.__file__).parents[3]


@pytest.mark.slow
def test_federatedscope_runs_with_the_plugin_and_untouched(toy, home):
    (toy / "clients.yaml").write_text(CLIENTS)
    command = ["-m", "federatedscope_ggeur", "--engine", "federatedscope"]
    command += ["--cfg", "toy.yaml", "--client_cfg", "clients.yaml"]
    settings = ["federate.total_round_num", "1", "client_1.train.optimizer.lr", "0.25"]
    done = run([*command, *settings, "expname", "here"], home, toy)
    assert done.returncode == 0, done.stderr
    assert "Server: Final evaluation is finished" in done.stderr
    config = (toy / "exp" / "here" / "config.yaml").read_text()
    assert "ggeur:\n  use: false\n" in config
    assert "total_round_num: 1" in config
    log = (toy / "exp" / "here" / "exp_print.log").read_text()
    assert "lr: 0.25" in log
    assert "local_update_steps: 3" in log


LATE = """\
import sys
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.federation.course.checkpoint import checkpoint_rounds
sys.path.insert(0, sys.argv.pop(1))
from federatedscope.core.configs.config import global_cfg
before = list(sys.argv)
settings = ["--cfg", "ggeur_quickstart.yaml", "ggeur.steps", "[3]"]
status = main(["--engine", "federatedscope", *settings])
print(status, before == sys.argv)
"""


@pytest.mark.slow
def test_a_config_that_was_built_before_and_a_wrong_setting(toy, home):
    done = run(["-c", LATE, str(home)], home, toy)
    assert done.stdout.split() == ["1", "True"], done.stderr
    error = done.stderr[done.stderr.rindex("error:") :]
    assert error.startswith("error: wrong settings:\n")
    assert "  ggeur.steps: must be [], [1], [2] or [1, 2], got [3]" in error
    assert "Traceback" not in done.stderr


@pytest.fixture
def launched(toy, monkeypatch, capsys):
    """What a run on FederatedScope that cannot begin says."""

    def launch(*words: str) -> str:
        config = ["--engine", "federatedscope", "--cfg", str(toy / "toy.yaml")]
        assert main([*config, *words]) == 1
        return capsys.readouterr().err

    return launch


def test_no_federatedscope(launched, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "federatedscope", None)
    monkeypatch.delenv("FEDERATEDSCOPE_HOME", raising=False)
    error = launched()
    assert error.startswith("error: FederatedScope was not found")
    for way in ("git clone", "pip install", "enable FOLDER"):
        assert way in error
    monkeypatch.setenv("FEDERATEDSCOPE_HOME", str(tmp_path))
    assert f"FEDERATEDSCOPE_HOME: the folder '{tmp_path}' is no" in launched()


def test_what_is_missing_is_named(launched, monkeypatch, home):
    assert "--client_cfg: the file 'no.yaml' does not exist" in launched(
        "--client_cfg", "no.yaml"
    )
    monkeypatch.setitem(sys.modules, "pympler", None)
    error = launched()
    assert "not installed: pympler." in error
    assert "pip install 'federatedscope-ggeur[federatedscope]'" in error


@pytest.mark.parametrize("words", [["--quiet"], ["--log-level", "debug"]])
def test_federatedscope_shows_what_its_own_setting_says(capsys, words):
    command = ["--engine", "federatedscope", "--cfg", "ggeur_quickstart.yaml"]
    assert main([*command, "seed", "1", *words]) == 1
    assert "verbose 0" in capsys.readouterr().err


def test_federatedscope_is_refused_with_what_to_do(quickstart, capsys):
    words = ["--cfg", str(quickstart), "--engine", "federatedscope", "--dry-run"]
    assert main(words) == 1
    assert "leave out --engine federatedscope" in capsys.readouterr().err
