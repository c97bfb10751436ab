"""Studies of the bundled digits, written and run as a user does."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import yaml
from own_process import PATIENCE

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.reporting import Results, numbers

METHODS = {"FedAvg": {"ggeur.steps": []}, "+ GGEUR": {}}
SHORT = {"federate.total_round_num": 3}


class StudyOnDisk:
    """A study file, the command that runs it, and what it leaves."""

    def __init__(self, folder: Path, **content):
        self.file, self.out = folder / "study.yaml", folder / "out"
        content = {
            "base": "ggeur_quickstart",
            "settings": SHORT,
            "axes": {"method": METHODS},
            "seeds": [0, 1],
            **content,
        }
        self.write(content)

    def write(self, content):
        self.content = content
        text = "# A title\n" + yaml.safe_dump(content, sort_keys=False)
        self.file.write_text(text)

    def start(self, *words):
        command = [sys.executable, "-m", "federatedscope_ggeur", "study"]
        command += [str(self.file), "--out", str(self.out), *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words, status=0):
        """What the command says in this process, from which it forks its workers."""
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            ended = main(
                ["study", str(self.file), "--out", str(self.out), *map(str, words)]
            )
        assert ended == status, said.getvalue()
        assert "Traceback" not in said.getvalue(), said.getvalue()
        return said.getvalue()

    def numbers(self, out=None):
        """What every finished run found, by its folder in the study's."""
        folder = out or self.out
        return {
            path.parent.relative_to(folder).as_posix(): numbers(
                Results.from_json(path.read_text())
            )
            for path in sorted(Path(folder).rglob("results.json"))
        }

    def study(self):
        return json.loads((self.out / "study.json").read_text())


def children_of(pid):
    """The processes that a process has started (Linux)."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(child) for child in path.read_text().split()]
    except OSError:
        return []


def end(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def until(found, process, seconds=PATIENCE):
    """Wait until `found()` is true, while a process goes on."""
    last = time.monotonic() + seconds
    while not found():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < last, "it did not happen"
        time.sleep(0.02)
