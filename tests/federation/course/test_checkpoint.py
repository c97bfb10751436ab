"""Runs that are stopped, or killed, and go on from their checkpoint.

That they end as if nothing had happened: `tests/engines/test_same_bits.py`.
"""

from __future__ import annotations

import time
from itertools import count

import pytest
from every_method import ADDED, FEDERATED
from kept_rounds import checkpoint_rounds

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.course.checkpoint import (
    Checkpointing,
)
from federatedscope_ggeur.reporting import Round0, numbers

ROUNDS = ("federate.total_round_num", 4)
SAMPLED = ("federate.client_num", 6, "federate.sample_client_num", 2)
#: FedMix, FedGen and FedFA send tensors up in round 0; the others, and FedGen, keep a
#: state on clients, on the server, or on both. Augmentations stand beside SCAFFOLD.
STATEFUL = (
    *(name for name, method in FEDERATED.items() if method.keeps_state),
    *ADDED,
)
#: Of these the server alone keeps one.
SERVERS = ("fedavgm", "fedproto", "fedopt")


@pytest.fixture
def config(config):
    return lambda *settings: config(*ROUNDS, *settings)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "checkpoint"


def outcome(results):
    """All that a run and its continuation must have equal."""
    kept = numbers(results)
    for key in ("save_to", "restore_from"):
        del kept["config"]["federate"][key]
    return kept


def stop_after(cfg, last):
    """Run `cfg` up to round `last` and not on."""
    stop_run(Run(cfg), last)


def stop_run(one, last):
    for record in one.engine.run():
        done = 0 if isinstance(record, Round0) else record.round
        if done == last:
            return
    raise AssertionError(f"there was no round {last}")


@pytest.fixture
def config_of(config):
    """Like `config`, for a method."""

    def load(method, *settings):
        if method not in ADDED:
            adam = ["fedopt.optimizer.type", "Adam", "fedopt.optimizer.lr", 0.1]
            own = adam if method == "fedopt" else []
            return config("ggeur.base_method", method, *own, *settings)
        both = "ggeur.base_method", "scaffold", "ggeur.augmentation", method
        few = "ggeur.privacy.min_samples", 2
        return config(*both, *few, *settings)

    return load


def files_at(path):
    return {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}


@pytest.mark.parametrize("method", ["local", "scaffold"])
def test_without_the_state_of_a_client_a_run_does_not_go_on(config, path, method):
    chosen = ["ggeur.base_method", method]
    stop_after(config("federate.save_to", path, *chosen), 2)
    (path.parent / f"{path.name}.clients" / "client_0002.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"client_0002.* of client 2 is missing"):
        run(config("federate.restore_from", path, *chosen))


@pytest.mark.slow
@pytest.mark.parametrize("method", [*STATEFUL, *SERVERS])
def test_states_and_uploads_go_on_also_after_a_round_that_was_cut_off(
    config_of, path, tmp_path, method
):
    """Stopped after round 1, then in round 3, and the last time elsewhere."""

    def own(*settings):
        return config_of(method, *SAMPLED, *settings)

    other = tmp_path / "other"
    stop_after(own("federate.save_to", path), 1)
    both = ("federate.save_to", path, "federate.restore_from", path)
    stop_after(own(*both), 2)
    before = path.read_bytes()
    stop_after(own(*both), 3)
    path.write_bytes(before)  # the clients' files are of round 3
    stop_after(own("federate.restore_from", path, "federate.save_to", other), 3)
    results = run(own("federate.restore_from", other))
    assert outcome(results) == outcome(run(own()))


@pytest.mark.slow
def test_states_of_an_earlier_run_are_not_taken(config_of, path):
    def own(*settings):
        return config_of("scaffold", *SAMPLED, *settings)

    save = ("federate.save_to", path)
    stop_after(own(*save, "seed", 1), 1)
    states = files_at(path)
    path.unlink()  # or nothing would be written there
    stop_after(own(*save), 0)
    # As if it had been cut off before it took them away.
    for file in states.keys() - files_at(path).keys():
        file.write_bytes(states[file])
    results = run(own("federate.restore_from", path))
    assert outcome(results) == outcome(run(own()))


@pytest.mark.slow
def test_more_rounds_may_follow(config, path, caplog):
    caplog.set_level("INFO")
    more = ("federate.total_round_num", 6)
    run(config("federate.save_to", path))
    results = run(config("federate.restore_from", path, *more))
    assert outcome(results) == outcome(run(config(*more)))
    assert "goes on after round 4 of the run of" in caplog.text


def test_the_whole_run_is_there_when_it_was_over(config, path):
    first = run(config("federate.save_to", path))
    following = Run(config("federate.restore_from", path))
    again = following.follow(lambda record: None)
    assert outcome(again) == outcome(first)
    assert again.rounds == first.rounds  # times included: nothing ran twice


def test_fewer_rounds_than_there_were_are_refused(config, path):
    run(config("federate.save_to", path))
    with pytest.raises(
        ConfigError, match=r"of round 4, .*total_round_num is 3; set it"
    ):
        Run(config("federate.restore_from", path, "federate.total_round_num", 3))


def test_round_0_is_written_once(config, path):
    stop_after(config("federate.save_to", path), 0)
    round0 = path.with_name("checkpoint.round0")
    before, model = round0.stat(), path.read_bytes()
    run(config("federate.save_to", path, "federate.restore_from", path))
    assert round0.stat().st_ino == before.st_ino
    assert path.read_bytes() != model


def test_nothing_but_the_checkpoint_is_left(config, path):
    run(config("federate.save_to", path))
    names = {p.name for p in files_at(path)}
    assert names == {"checkpoint", "checkpoint.round0"}


class TestWhenItIsWritten:
    @pytest.fixture
    def clock(self, monkeypatch):
        """Seconds that pass when the test says so."""
        seconds = [1000.0]
        monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
        return seconds

    @pytest.fixture
    def begun(self, config, tmp_path):
        """A run of six rounds that keeps checkpoints in the test's folder."""

        def begin(*settings):
            one = Run(config("federate.total_round_num", 6, *settings))
            one.engine.keep_in(tmp_path)
            return one

        return begin

    def test_after_round_0_then_once_a_minute_and_at_the_end(
        self, begun, clock, tmp_path
    ):
        path, one, seen = tmp_path / "private" / "checkpoint", begun(), []
        for _ in one.engine.run():
            seen.append(checkpoint_rounds(path))
            clock[0] += 25.0
        assert seen == [0, 0, 0, 3, 3, 3, 6]

    def test_whenever_it_is_stopped(self, begun, tmp_path):
        path, one = tmp_path / "private" / "checkpoint", begun()
        stop_run(one, 4)
        assert checkpoint_rounds(path) == 0
        one.history.flush()
        assert checkpoint_rounds(path) == 4
        before = path.stat().st_mtime_ns
        one.history.flush()  # nothing is new
        assert path.stat().st_mtime_ns == before

    @pytest.mark.slow
    def test_a_run_that_is_killed_goes_on_from_the_last_one(
        self, begun, config, monkeypatch, tmp_path
    ):
        monkeypatch.setattr(time, "monotonic", count(step=20).__next__)
        settings = ("ggeur.base_method", "scaffold", *SAMPLED)
        stop_run(begun(*settings), 5)  # no flush: the process is gone
        path = tmp_path / "private" / "checkpoint"
        assert 0 < checkpoint_rounds(path) < 5
        more = ("federate.total_round_num", 6, *settings)
        results = run(config("federate.restore_from", path, *more))
        assert outcome(results) == outcome(run(config(*more)))

    def test_a_restored_run_keeps_its_own_at_once(self, begun, config, tmp_path):
        first = tmp_path / "first"
        run(config("federate.save_to", first))
        begun("federate.restore_from", first)
        assert checkpoint_rounds(tmp_path / "private" / "checkpoint") == 4


class Failing:
    """Writes nothing."""

    path = None

    def write(self, snapshot, coordinator):
        raise ConfigError("federate.save_to: no room")


@pytest.mark.parametrize("asked", [True, False])
def test_a_full_disk_ends_a_run_only_where_somebody_named_a_file(config, caplog, asked):
    one = Run(config())
    one.history.keep(Checkpointing(Failing(), asked=asked))
    if asked:
        with pytest.raises(ConfigError, match="no room"):
            one.follow(lambda record: None)
        return
    assert len(one.follow(lambda record: None).rounds) == 4
    assert caplog.text.count("this run writes no more checkpoints: ") == 1
