"""When a checkpoint is written, and what a run leaves that is killed meanwhile."""

from __future__ import annotations

import time

import pytest

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.course.checkpoint import checkpoint_rounds
from federatedscope_ggeur.federation.course.checkpointing import Checkpointing
from federatedscope_ggeur.reporting import Round0, numbers

ROUNDS = ("federate.total_round_num", 6)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    seconds = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    return seconds


@pytest.fixture
def begun(config, tmp_path):
    """A run with the given settings that keeps checkpoints in the test's folder."""

    def begin(*settings):
        one = Run(config(*ROUNDS, *settings))
        one.engine.keep_in(tmp_path)
        return one

    return begin


def rounds_of(engine):
    """Round numbers, as they end."""
    for record in engine.run():
        yield 0 if isinstance(record, Round0) else record.round


def test_after_round_0_then_once_a_minute_and_at_the_end(begun, clock, tmp_path):
    path, one, seen = tmp_path / "private" / "checkpoint", begun(), []
    for _ in rounds_of(one.engine):
        seen.append(checkpoint_rounds(path))
        clock[0] += 25.0
    assert seen == [0, 0, 0, 3, 3, 3, 6]
    one.history.flush()
    assert checkpoint_rounds(path) == 6


def test_whenever_it_is_stopped(begun, tmp_path):
    path, one = tmp_path / "private" / "checkpoint", begun()
    for number in rounds_of(one.engine):
        if number == 4:
            break
    assert checkpoint_rounds(path) == 0
    one.history.flush()
    assert checkpoint_rounds(path) == 4
    before = path.stat().st_mtime_ns
    one.history.flush()  # nothing is new
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("method", ["fedavg", "moon", "scaffold", "local"])
@pytest.mark.parametrize("killed", [3, 5])
def test_a_run_that_is_killed_goes_on_from_the_last_one(
    begun, config, clock, tmp_path, method, killed
):
    settings = ("ggeur.base_method", method, "federate.sample_client_num", 2)
    for number in rounds_of(begun(*settings).engine):
        if number == killed:
            break  # no flush: the process is gone
        clock[0] += 30.0
    path = tmp_path / "private" / "checkpoint"
    assert checkpoint_rounds(path) == {3: 2, 5: 4}[killed]
    restored = config(*ROUNDS, *settings, "federate.restore_from", path)
    whole = config(*ROUNDS, *settings)
    assert numbers(run(restored))["rounds"] == numbers(run(whole))["rounds"]


def test_killed_between_the_files_of_clients_and_the_server_s(
    begun, config, clock, tmp_path
):
    settings = ("ggeur.base_method", "scaffold")
    one = begun(*settings)
    for number in rounds_of(one.engine):
        if number == 3:
            server_s = (tmp_path / "private" / "checkpoint").read_bytes()
        clock[0] += 30.0
        if number == 5:
            break
    (tmp_path / "private" / "checkpoint").write_bytes(
        server_s
    )  # of round 2, the clients' of 4
    assert checkpoint_rounds(tmp_path / "private" / "checkpoint") == 2
    again = config(
        *ROUNDS, *settings, "federate.restore_from", tmp_path / "private" / "checkpoint"
    )
    whole = numbers(run(config(*ROUNDS, *settings)))
    assert numbers(run(again))["rounds"] == whole["rounds"]


def test_a_restored_run_keeps_its_own_at_once(begun, config, tmp_path):
    first = tmp_path / "first"
    run(config(*ROUNDS, "federate.save_to", first))
    begun("federate.restore_from", first)
    assert checkpoint_rounds(tmp_path / "private" / "checkpoint") == 6


class Failing:
    """Writes nothing."""

    path = None

    def write(self, snapshot, coordinator):
        raise ConfigError("federate.save_to: no room")


@pytest.mark.parametrize("asked", [True, False])
def test_a_full_disk_ends_a_run_only_where_somebody_named_a_file(config, caplog, asked):
    one = Run(config(*ROUNDS))
    one.history.keep(Checkpointing(Failing(), asked=asked))
    if asked:
        with pytest.raises(ConfigError, match="no room"):
            one.follow(lambda record: None)
        return
    assert len(one.follow(lambda record: None).rounds) == 6
    assert caplog.text.count("this run writes no more checkpoints: ") == 1
