"""Files for systemd and containers: they start commands that there are.

No container is built here. What was tried by hand stands in docs/sites.md.
"""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from federatedscope_ggeur.commands import COMMANDS, find_command

DEPLOY = Path(__file__).parents[1] / "scripts" / "deploy"
UNITS = ("ggeur-serve.service", "ggeur-join.service")


def check_command(words: list[str]) -> None:
    """The command is there, and takes these options."""
    name, *options = words
    assert name in COMMANDS
    assert options[0] == "--cfg"
    with pytest.raises(SystemExit) as ended:
        find_command(name)(["--help"])
    assert ended.value.code == 0


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_that_there_is(name):
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(DEPLOY / name)
    program, *words = unit["Service"]["ExecStart"].split()
    assert program.endswith("/bin/ggeur")
    check_command(words)
    assert unit["Service"]["KillSignal"] == "SIGTERM"


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_unit(name, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze, which reads units, is missing")
    text = (DEPLOY / name).read_text()
    (tmp_path / name).write_text(text.replace("/opt/ggeur/bin/ggeur", sys.executable))
    command = ["systemd-analyze", "verify", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, name in done.stderr) == (0, False), done.stderr


def test_a_container_starts_a_command_that_there_is_and_is_asked_how_it_is():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        check_command(service["command"])
        assert (DEPLOY / service["build"]["dockerfile"]).is_file()
    text = (DEPLOY / "Containerfile").read_text()
    check_command(re.search(r"ggeur (healthy --cfg)", text)[1].split())
    assert "USER federation" in text
