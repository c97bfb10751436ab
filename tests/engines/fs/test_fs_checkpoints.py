"""Checkpoints of runs on FederatedScope (FS): what is FS's own about them.

FS's server worker goes on in calls of its own, and its files go between the engines.
Its own pickles are a start. A run that nobody asked to keep any keeps one, and says by
which program to go on.
"""

import os
import shlex
import sys

import pytest
import torch
from hostile_pickles import Runs
from kept_rounds import checkpoint_rounds
from standalone import outcome

from federatedscope_ggeur.engines import run as checkpoints
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting import Round0

ROUNDS = ("federate.total_round_num", 4)
SAMPLED = ["federate.client_num", 6, "federate.sample_client_num", 2]
SETTINGS = {
    "before the first round": (0, SAMPLED),
    "sampled": (2, SAMPLED),
    "states of a method": (2, [*SAMPLED, "ggeur.base_method", "scaffold"]),
    "own heads": (2, ["ggeur.base_method", "local"]),
}
TEMPERATURE = [
    "data.splits", [0.3, 0.55, 0.15], "eval.split", ["test", "val"],
    "data.splitter", "domain", "data.splitter_args", [],
]  # fmt: skip
#: From which engine to which one a run goes.
WAYS = [
    *(("standalone", "standalone", name) for name in SETTINGS),
    ("embedded", "standalone", "states of a method"),
    ("standalone", "embedded", "sampled"),
]


class Stop(Exception):
    pass


@pytest.fixture(autouse=True)
def _nobody_else_has_started_it(monkeypatch):
    monkeypatch.setattr(checkpoints, "_started_by", [])


def stopped_after(run, last: int) -> None:
    """`run` goes on up to round `last` and not on."""
    server, begin = run.server, run.server.broadcast_model_para

    def stopping(*args, **kwargs):
        if server.state == last:
            raise Stop
        begin(*args, **kwargs)

    server.broadcast_model_para = stopping
    with pytest.raises(Stop):
        run.go()


@pytest.fixture
def engines(fs, config):
    """How to run on each engine: to the end, or up to a round and not on."""

    def embedded(*settings, last=None):
        run = Run(config(*ROUNDS, *settings))
        if last is None:
            return outcome(run.follow(lambda record: None))
        for record in run.engine.run():
            if (0 if isinstance(record, Round0) else record.round) == last:
                return None
        raise AssertionError(f"there was no round {last}")

    def standalone(*settings, last=None):
        run = fs.set_up(*ROUNDS, *settings)
        if last is None:
            return outcome(run.go().results)
        return stopped_after(run, last)

    return {"embedded": embedded, "standalone": standalone}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "name"), WAYS)
def test_a_run_that_was_stopped_ends_with_the_same_results(
    engines, tmp_path, first, second, name
):
    last, settings = SETTINGS[name]
    path = tmp_path / "kept" / "checkpoint"
    engines[first](*settings, "federate.save_to", path, last=last)
    results = engines[second](*settings, "federate.restore_from", path)
    assert results == engines["embedded"](*settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        [],
        ["federate.total_round_num", 6],
        ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 30],
        TEMPERATURE,
    ],
    ids=["as it was", "longer", "calibrated", "a temperature"],
)
def test_a_run_that_was_over_goes_on_to_its_end(engines, tmp_path, more):
    """FS's worker has nothing to wait for then."""
    path = tmp_path / "checkpoint"
    before = more if more is TEMPERATURE else []
    engines["standalone"](*before, "federate.save_to", path)
    results = engines["standalone"]("federate.restore_from", path, *more)
    wanted = engines["embedded"](*more)
    assert results["rounds"] == wanted["rounds"]
    for part in ("accuracy", "head_sha256", "calibrated_by"):
        assert results["final"][part] == wanted["final"][part]
    assert (wanted["final"]["calibrated_by"] == "validation") == (more is TEMPERATURE)


@pytest.mark.slow
def test_a_malicious_pickle_runs_nothing(engines, tmp_path):
    """FS itself would unpickle it. All other files: test_checkpoint.py."""
    path = tmp_path / "malicious"
    torch.save({"cur_round": 1, "model": Runs(tmp_path / "executed")}, path)
    with pytest.raises(ConfigError, match=r"federate\.restore_from"):
        engines["standalone"]("federate.restore_from", path)
    assert not (tmp_path / "executed").exists()


def test_the_command_goes_on_from_the_last_checkpoint_alone(monkeypatch):
    words = ["--cfg", "my run.yaml", "--client_cfg", "c.yaml", "seed", "1"]
    before = ["federate.restore_from", "old", "ggeur.use", "True"]
    monkeypatch.setattr(sys, "argv", ["FS/federatedscope/main.py", *words, *before])
    after = [*words, *before[2:], "federate.restore_from", "new one"]
    here = ["cd", os.getcwd(), "&&"]
    told = shlex.split(checkpoints.command_to_go_on("new one"))
    assert told == [*here, "python", "FS/federatedscope/main.py", *after]
    checkpoints.note_start(["ggeur", "--engine", "federatedscope"])
    monkeypatch.chdir("/")  # as a server goes to the folder of its file
    told = shlex.split(checkpoints.command_to_go_on("new one"))
    assert told == [*here, "ggeur", "--engine", "federatedscope", *after]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_run_keeps_one_in_its_folder_unless_told_not_to(fs, method):
    run = fs.set_up(*ROUNDS, "ggeur.base_method", method)
    stopped_after(run, 2)
    path, history = run.folder / "private" / "checkpoint", run.server.federation.history
    # Where clients keep a state, theirs and the server's are always of one round.
    assert checkpoint_rounds(path) == (0 if method == "fedavg" else 2)
    history.flush()
    assert checkpoint_rounds(path) == 2
    restored = fs.run(*ROUNDS, "ggeur.base_method", method,
                      "federate.restore_from", path)  # fmt: skip
    assert "goes on after round 2 of the run of" in restored.log
    assert not (fs.run("ggeur.checkpoint_every", -1).folder / "checkpoint").exists()
