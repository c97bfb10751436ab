"""Checkpoints of runs on FederatedScope that nobody asked for, and how to go on."""

from __future__ import annotations

import re
import shlex
import signal
import sys

import pytest
from standalone import outcome

from federatedscope_ggeur.engines import checkpoints
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.course.checkpoint import checkpoint_rounds

pytestmark = pytest.mark.slow

ROUNDS = ("federate.total_round_num", 4)


class Stop(Exception):
    pass


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


@pytest.fixture(autouse=True)
def _nobody_else_has_started_it(monkeypatch):
    monkeypatch.setattr(checkpoints, "_started_by", [])


def test_the_command_goes_on_from_the_last_checkpoint_alone(monkeypatch):
    words = ["--cfg", "my run.yaml", "--client_cfg", "c.yaml", "seed", "1"]
    before = ["federate.restore_from", "old", "ggeur.use", "True"]
    monkeypatch.setattr(sys, "argv", ["FS/federatedscope/main.py", *words, *before])
    after = [*words, *before[2:], "federate.restore_from", "new one"]
    told = shlex.split(checkpoints.command_to_go_on("new one"))
    assert told == ["python", "FS/federatedscope/main.py", *after]
    checkpoints.note_start(["ggeur", "--engine", "federatedscope"])
    told = shlex.split(checkpoints.command_to_go_on("new one"))
    assert told == ["ggeur", "--engine", "federatedscope", *after]


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "local"])
def test_a_stopped_run_goes_on_from_its_folder(fs, method):
    settings = (*ROUNDS, "ggeur.base_method", method)
    whole = outcome(fs.run(*settings).results)
    run = fs.set_up(*settings)
    stopped_after(run, 2)
    path, history = run.folder / "private" / "checkpoint", run.server.federation.history
    # Where clients keep a state, theirs and the server's are always of one round.
    assert checkpoint_rounds(path) == (0 if method == "fedavg" else 2)
    history.flush()
    assert checkpoint_rounds(path) == 2
    restored = fs.run(*settings, "federate.restore_from", path)
    assert outcome(restored.results) == whole
    assert "goes on after round 2 of the run of" in restored.log


def test_sigterm_is_taken_while_a_run_goes_on_and_left_after_it(fs):
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        run, seen = fs.set_up(), []
        note = run.server.federation.note

        def noting(record):
            note(record)
            seen.append(signal.getsignal(signal.SIGTERM))

        run.server.federation.note = noting
        run.go()
        assert seen == [signal.default_int_handler] * 4
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_seconds_there_is_none(fs):
    assert not (fs.run("ggeur.checkpoint_every", -1).folder / "private").exists()


def test_an_earlier_run_s_checkpoint_stays(fs, tmp_path):
    path = tmp_path / "kept"
    fs.run("federate.save_to", path)
    before = path.read_bytes()
    with pytest.raises(
        ConfigError, match=r"save_to: .*kept' is a checkpoint of another run"
    ):
        fs.run("federate.save_to", path)
    assert path.read_bytes() == before


def test_a_client_does_not_write_over_a_state_that_it_does_not_go_on_from(
    fleet, tmp_path
):
    save = ("federate.save_to", tmp_path / "kept", "ggeur.base_method", "scaffold")
    one = fleet(*save)
    workers = [one.server(), *(one.client(k) for k in range(1, 5))]
    assert [worker.wait() for worker in workers] == [0] * 5
    client = fleet(*save).client(2, name="again")
    assert client.wait() not in (0, -9)
    said = client.output
    assert re.search(r"kept.*client_0002.* is the state of client 2 in", said), said
