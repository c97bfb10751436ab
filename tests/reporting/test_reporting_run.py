"""The folder of a run and the files in it."""

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from own_process import python
from written_runs import make_results

from federatedscope_ggeur import reporting
from federatedscope_ggeur.errors import ConfigError, DataError


def test_run_folders_follow_federatedscope_and_are_never_reused(tmp_path):
    outdir = tmp_path / "a" / "b"
    first = reporting.new_run_folder(outdir, "exp")
    assert first == outdir / "exp"
    (first / "results.json").write_text("kept")
    # Far faster than one a second, so several share a time stamp.
    others = [reporting.new_run_folder(outdir, "exp") for _ in range(5)]
    assert len({first, *others}) == 6
    for folder in others:
        assert folder.parent == first
        assert re.fullmatch(r"sub_exp_\d{14}(_\d+)?", folder.name)
        assert not os.listdir(folder)
    assert (first / "results.json").read_text() == "kept"


def test_runs_that_start_together_get_different_folders(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(lambda _: reporting.new_run_folder(tmp_path, "exp"), range(32))
        )
    assert len(set(made)) == 32


@pytest.mark.parametrize("blocked", ["out", "out/exp"])
def test_a_file_in_the_way_is_a_named_error(tmp_path, blocked):
    path = tmp_path / blocked
    path.parent.mkdir(exist_ok=True)
    path.write_text("kept")
    problem = rf"'{re.escape(str(path))}' is not a folder.*outdir"
    with pytest.raises(ConfigError, match=problem):
        reporting.new_run_folder(tmp_path / "out", "exp")
    assert path.read_text() == "kept"


def test_write_run_writes_nothing_when_results_cannot_be_written(tmp_path):
    with pytest.raises(DataError, match=r"results\.config\.lr"):
        reporting.write_run(tmp_path, make_results(config={"lr": float("inf")}))
    assert os.listdir(tmp_path) == []


def test_a_run_leaves_its_numbers_and_their_curve(tmp_path):
    reporting.write_run(tmp_path, make_results([{"clean": 0.5}]))
    left = ["curve.png", "metrics.csv", "results.json"]
    assert sorted(os.listdir(tmp_path)) == left


# Whose model is to predict: one number for all rows, or one for each.


KNOWN = [reporting.ClientInfo(1, "art", 9, 3), reporting.ClientInfo(4, "photo", 9, 3)]


def numbers(clients, rows=3, shared=True, known=KNOWN):
    return reporting.numbers_of_rows(clients, rows, known, shared, "--clients").tolist()


def test_one_number_is_for_all_rows_or_there_is_one_for_each():
    for one in (4, np.int64(4), torch.tensor(4)):
        assert numbers(one) == [4, 4, 4]
        assert numbers(one, rows=0) == numbers([], rows=0) == []
    each = [1, 4, 0]
    for form in (each, tuple(each), np.array(each, dtype="i2"), torch.tensor(each)):
        assert numbers(form) == each


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        (None, "say which client's model is to predict"),
        (2, "there is no client 2"),
        ([1, 4, 10**9], "there is no client 1000000000"),
        ("art", "must be a client's number"),
        (1.0, "must be a client's number"),
        (True, "must be a client's number"),
        ([[1, 4, 1]], "must be a client's number"),
        ([[1], [4, 1]], "must be a client's number"),
        ([1, None, 4], "must be a client's number"),
    ],
    ids=str,
)
def test_another_is_refused_with_the_clients(clients, said):
    with pytest.raises(DataError, match=rf"--clients: .*{said}") as caught:
        numbers(clients)
    assert "1 (art), 4 (photo)" in str(caught.value)


@pytest.mark.parametrize("clients", [[1, 4], [], [1] * 4], ids=str)
def test_as_many_as_rows(clients):
    with pytest.raises(DataError, match=f"each of the 3 rows, got {len(clients)}"):
        numbers(clients)


def test_without_a_global_model_there_is_no_number_0():
    with pytest.raises(DataError, match="there is no client 0"):
        numbers(0, shared=False)
    with pytest.raises(DataError, match="0 is the global model"):
        numbers(None)
    with pytest.raises(DataError) as caught:
        numbers(None, shared=False)
    assert "global" not in str(caught.value)


def test_of_many_clients_and_odd_names_the_message_stays_short():
    odd = "two\nlines\x1b[31m" + "x" * 5000
    many = [reporting.ClientInfo(k, odd, 1, 1) for k in range(1, 500)]
    with pytest.raises(DataError, match="479 more") as caught:
        numbers(None, known=many)
    said = str(caught.value)
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) < 3000


# Where and how a run was made, asked of real processes and a real repository.


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
    return json.loads(python("-c", SCRIPT, size, cwd=folder).stdout)


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
    reporting.Capture()
    held = np.ones(100_000_000)
    del held
    before = reporting.Capture().provenance().peak_memory
    held = np.ones(100_000_000)
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of memory begins anew on Linux only")
    assert reporting.Capture().provenance().peak_memory - before > 500e6
    del held


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
def test_a_run_says_which_rows_it_used_and_its_times_since_it_began():
    from federatedscope_ggeur import run

    one, other = (run("ggeur_quickstart", overrides={**QUICK, "seed": s}) for s in "12")
    found = one.provenance
    assert found.data.rows == sum(c.train_rows + c.test_rows for c in one.clients)
    # Another seed splits the rows otherwise.
    assert found.data.sha256 != other.provenance.data.sha256
    assert found.wall_seconds > one.final.seconds
    assert found.cpu_seconds > 0
    assert found.cores >= 1
    assert found.processor
