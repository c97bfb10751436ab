"""Where and how a run was made, asked of real processes and a real repository."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from federatedscope_ggeur.reporting import Capture

QUICK = {"federate.total_round_num": 1}
SCRIPT = """
import json, sys
from federatedscope_ggeur.reporting import Capture
capture = Capture()
held = bytearray(int(sys.argv[1]))
held[::4096] = b"1" * len(held[::4096])
found = capture.provenance()
print(json.dumps([found.peak_memory, found.git_commit, found.git_changed,
                  found.command[-1]]))
"""


def ask(folder: Path, size: int):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(size)],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_peak_memory_and_command_are_of_the_process(tmp_path):
    little, commit, changed, command = ask(tmp_path, 1)
    much = ask(tmp_path, 200_000_000)[0]
    assert 150e6 < much - little < 250e6
    assert (commit, changed, command) == (None, None, "1")


@pytest.mark.slow
def test_the_commit_of_the_users_folder(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "mine.yaml").write_text("a: 1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    assert ask(tmp_path, 1)[1:3] == [commit, False]
    (tmp_path / "mine.yaml").write_text("a: 2")
    assert ask(tmp_path, 1)[1:3] == [commit, True]


@pytest.mark.slow
def test_a_peak_of_before_is_not_the_runs():
    Capture()
    held = np.ones(100_000_000)
    del held
    before = Capture().provenance().peak_memory
    held = np.ones(100_000_000)
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of memory begins anew on Linux only")
    assert Capture().provenance().peak_memory - before > 500e6
    del held


@pytest.fixture(scope="module")
def two_seeds():
    from federatedscope_ggeur import run

    return [run("ggeur_quickstart", overrides={**QUICK, "seed": s}) for s in (1, 1, 2)]


@pytest.mark.slow
def test_a_run_says_which_rows_it_used(two_seeds):
    first, again, other = (results.provenance.data for results in two_seeds)
    held = sum(c.train_rows + c.test_rows for c in two_seeds[0].clients)
    assert first == again
    assert first.rows == held
    assert first.sha256 != other.sha256  # another seed splits the rows otherwise


def test_order_and_holders_do_not_matter_but_rows_do():
    from federatedscope_ggeur import load_config
    from federatedscope_ggeur.data import centralise, fingerprint
    from federatedscope_ggeur.engines.run import load_federated_data

    def of(**changes):
        settings = {k.replace("__", "."): v for k, v in changes.items()}
        return load_federated_data(load_config("ggeur_quickstart", settings))

    iid = {"data__splitter": "iid", "data__splitter_args": [], "seed": 3}
    four, eight = of(**iid), of(federate__client_num=8, **iid)
    assert fingerprint(four) == fingerprint(eight) == fingerprint(centralise(four))
    four.clients[0].train.features[0, 0] += 1e-3
    assert fingerprint(four)[1] != fingerprint(eight)[1]


@pytest.mark.slow
def test_times_are_since_the_run_began(two_seeds):
    for results in two_seeds:
        found = results.provenance
        assert found.wall_seconds > results.final.seconds
        assert found.cpu_seconds > 0
        assert found.cores >= 1
        assert found.processor
