"""Studies of the bundled digits, written and run as a user does."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from own_process import forked, keep_one_thread

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.machine import start_method
from federatedscope_ggeur.reporting import Results, numbers

METHODS = {"FedAvg": {"ggeur.steps": []}, "+ GGEUR": {}}
SHORT = {"federate.total_round_num": 3}
FORK = start_method()


class StudyOnDisk:
    """A study file, the command that runs it, and what it leaves."""

    def __init__(self, folder: Path, **content):
        self.file, self.out = folder / "study.yaml", folder / "out"
        self.said = folder / "said"
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

    def fork(self, *words):
        """The command in a fork of this process."""
        command = ["study", str(self.file), "--out", str(self.out), *words]
        with forked_workers():
            return forked(command, self.said)

    def run(self, *words, status=0):
        """What the command says in this process, from which it forks its workers."""
        command = ["study", str(self.file), "--out", str(self.out), *map(str, words)]
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said), forked_workers():
            ended = main(command)
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


@contextlib.contextmanager
def forked_workers():
    """A study's processes are forks of this one, and import nothing again.

    A program's are, too; but this process has imported torch, and would start new ones.
    """
    from federatedscope_ggeur.extras.studies import workers  # it may be taken out

    made, work = workers._Worker, workers.work

    def on_one_thread(pipe):
        keep_one_thread()
        work(pipe)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workers, "work", on_one_thread)
        patched.setattr(workers, "_Worker", lambda start="", gpu=None: made(FORK, gpu))
        yield


def two_seeds(load_study):
    """`load_study`, but with two of a study's seeds."""

    def load(*given):
        plan = load_study(*given)
        return replace(plan, seeds=plan.seeds[:2])

    return load


def end(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
