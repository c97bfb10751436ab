"""Runs that are stopped, or killed, and go on from their checkpoint; what is none.

That they end as if nothing had happened: `tests/engines/test_same_bits.py`.
"""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from carrier import carrier, lost
from every_method import ADDED, FEDERATED, words
from hostile_pickles import Runs
from kept_rounds import checkpoint_rounds

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.course.checkpoint import (
    Checkpointing,
    CheckpointWriter,
    Snapshot,
    restore,
)
from federatedscope_ggeur.federation.course.client_handler import ClientStore
from federatedscope_ggeur.federation.wire import pack, sealed, unpack
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.reporting import Round0, numbers

ROUNDS = ("federate.total_round_num", 4)
SAMPLED = ("federate.client_num", 6, "federate.sample_client_num", 2)
#: FedMix, FedGen and FedFA send tensors up in round 0; the others, and FedGen, keep a
#: state on clients, on the server, or on both. Augmentations stand beside SCAFFOLD.
STATEFUL = (*(name for name, method in FEDERATED.items() if method.keeps_state), *ADDED)
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


def settings_of(method):
    if method not in ADDED:
        return words(method)
    few = "ggeur.privacy.min_samples", 2
    return [*words("scaffold"), "ggeur.augmentation", method, *few]


def files_at(path):
    return {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}


@pytest.mark.parametrize("method", ["local", "scaffold"])
def test_without_the_state_of_a_client_a_run_does_not_go_on(config, path, method):
    chosen = ["ggeur.base_method", method]
    stop_after(config("federate.save_to", path, *chosen), 2)
    ClientStore(path, 2).path.unlink()
    again = config("federate.restore_from", path, *chosen)
    refused(again, r".*client_0002.* of client 2 is missing")


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=() if name == "fedfa" else pytest.mark.slow)
        for name in (*STATEFUL, *SERVERS)
    ],
)
def test_states_and_uploads_go_on_also_after_a_round_that_was_cut_off(
    config, path, tmp_path, method
):
    """Stopped after round 1, then in round 3, and the last time elsewhere."""

    def own(*settings):
        return config(*settings_of(method), *SAMPLED, *settings)

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
def test_states_of_an_earlier_run_are_not_taken(config, path):
    def own(*settings):
        return config(*words("scaffold"), *SAMPLED, *settings)

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


def test_more_rounds_may_follow(config, kept, caplog):
    caplog.set_level("INFO")
    more = ("federate.total_round_num", 6)
    results = run(config("federate.restore_from", kept, *more))
    assert outcome(results) == outcome(run(config(*more)))
    assert "goes on after round 4 of the run of" in caplog.text


def test_the_whole_run_is_there_when_it_was_over(config, path):
    first = run(config("federate.save_to", path))
    following = Run(config("federate.restore_from", path))
    again = following.follow(lambda record: None)
    assert outcome(again) == outcome(first)
    assert again.rounds == first.rounds  # times included: nothing ran twice
    assert str(again.rounds) == str(first.rounds)  # also the order of domains


def test_fewer_rounds_than_there_were_are_refused(config, kept):
    fewer = config("federate.restore_from", kept, "federate.total_round_num", 3)
    refused(fewer, r"of round 4, .*total_round_num is 3; set it")


def test_round_0_is_written_once(config, path):
    stop_after(config("federate.save_to", path), 0)
    round0 = path.with_name("checkpoint.round0")
    assert files_at(path).keys() == {path, round0}
    before, model = round0.stat(), path.read_bytes()
    run(config("federate.save_to", path, "federate.restore_from", path))
    assert round0.stat().st_ino == before.st_ino
    assert path.read_bytes() != model


class TestWhenItIsWritten:
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

    def test_a_restored_run_keeps_its_own_at_once(self, begun, config, tmp_path):
        first = tmp_path / "first"
        run(config("federate.save_to", first))
        begun("federate.restore_from", first)
        assert checkpoint_rounds(tmp_path / "private" / "checkpoint") == 4


class Failing:
    """Writes nothing."""

    path = None
    claimed = contextlib.nullcontext

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


# What is not taken for a checkpoint, and what a full disk leaves of one.


@pytest.fixture
def kept(config, path):
    """The checkpoint of a run of four rounds."""
    run(config("federate.save_to", path))
    return path


def refused(cfg, problem, data=None):
    with pytest.raises(ConfigError, match=rf"federate\.restore_from: .*{problem}"):
        Run(cfg, data)


def test_a_pickle_is_refused_unread(config, path, tmp_path):
    """FederatedScope's own checkpoints are pickles."""
    path.parent.mkdir()
    torch.save({"cur_round": 3, "model": Runs(tmp_path / "executed")}, path)
    refused(config("federate.restore_from", path), "not a message")
    assert not (tmp_path / "executed").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "executed").exists()  # so it would have been


class TestFiles:
    @pytest.mark.parametrize("name", ["nowhere", "nowhere/checkpoint", "."])
    def test_that_are_not_there(self, config, tmp_path, name):
        problem = "cannot be read: (No such file|Is a directory)"
        refused(config("federate.restore_from", tmp_path / name), problem)

    @pytest.mark.parametrize("suffix", ["", ".round0"])
    def test_that_are_cut_off_or_have_a_flipped_bit(self, config, kept, suffix):
        cfg, data = config("federate.restore_from", kept), Run(config()).data
        file = kept.with_name(kept.name + suffix)
        whole = file.read_bytes()
        for at in (0, 5, 9, *range(200, len(whole), len(whole) // 7)):
            file.write_bytes(whole[:at])
            refused(cfg, "(not a message|neither)", data)
            file.write_bytes(flipped(whole, at))
            refused(cfg, "", data)
        file.write_bytes(flipped(whole, len(whole) - 2))
        refused(cfg, "the content is damaged", data)
        file.write_bytes(whole)
        Run(cfg)

    def test_of_round_0_that_are_not_beside_it(self, config, kept, tmp_path):
        refused(config("federate.restore_from", f"{kept}.round0"), "'round 0' instead")
        other, round0 = tmp_path / "other", Path(f"{kept}.round0")
        run(config("federate.save_to", other))
        round0.write_bytes(Path(f"{other}.round0").read_bytes())
        refused(config("federate.restore_from", kept), "belongs to another run")
        round0.unlink()
        refused(config("federate.restore_from", kept), r"checkpoint\.round0' .*No such")

    @pytest.mark.parametrize(
        ("records", "problem"),
        [
            ("[]", "records: expected dict"),
            ('{"round0": 1}', "round0: expected dict"),
            ("9" * 6000, "a number has 6000 digits"),
            ("[" * 100_000, "nested too deeply"),
        ],
    )
    def test_records_that_somebody_wrote(self, config, kept, records, problem):
        """With the digest that goes with them."""
        message = unpack(kept.read_bytes(), "checkpoint", "a test")
        tensors = {"trained": message.tensor("trained", torch.float32, (None,))}
        numbers = {"run": message.text("run"), "records": records}
        kept.write_bytes(pack("checkpoint", sealed(numbers, tensors), tensors))
        refused(config("federate.restore_from", kept), problem)


class TestOtherRuns:
    """Handshakes tell settings apart: see tests/federation/wire/test_declared.py."""

    @pytest.mark.parametrize(
        ("key", "value", "problem"),
        [
            ("seed", 1, "seed is '0' there and '1' here"),
            ("fedprox.mu", 0.25, r"fedprox\.mu is '0\.5' there and '0\.25' here"),
            ("federate.client_num", 4, "client 4 was 'not there' then and is 'art'"),
        ],
    )
    def test_are_refused_by_name(self, config, path, key, value, problem):
        own = ["ggeur.base_method", "fedprox", "fedprox.mu", 0.5]
        run(config(*own, "federate.save_to", path))
        refused(config(*own, key, value, "federate.restore_from", path), problem)

    def test_of_other_data(self, config, kept):
        cfg, data = config("federate.restore_from", kept), Run(config()).data
        fewer = {"clients": data.clients[:2], "domains": data.domains[:2]}
        gone = "client 3 was 'sketch' then and is 'not there' now"
        refused(cfg, gone, replace(data, **fewer))
        other = replace(data, class_names=("z", *data.class_names[1:]))
        refused(cfg, "class 0 is '.*' there and 'z' here$", other)
        turned = data.mapped(lambda rows: replace(rows, features=-rows.features))
        refused(cfg, "its run had other rows", turned)

    def test_of_another_threshold_or_division_of_rows(self, config, path):
        """What was sent by another threshold is not what the run would say it is."""
        run(config("ggeur.privacy.min_samples", 3, "federate.save_to", path))
        goes_on = ("federate.restore_from", path, "ggeur.privacy.min_samples")
        refused(config(*goes_on, 4), r"made with ggeur\.privacy\.min_samples 3, not 4")
        divided = ("data.splits", [0.6, 0.1, 0.3])
        refused(config(*goes_on, 3, *divided), "divided them otherwise")


def test_rounds_that_were_trained_otherwise_are_named(config, kept, path, caplog):
    goes_on = ("federate.restore_from", kept, "federate.save_to", kept)
    more = ("federate.total_round_num", 5, "train.optimizer.lr", 0.5)
    more = (*more, "federate.sample_client_num", 2)
    results = run(config(*goes_on, *more))
    (note,) = (note for note in results.notes if "rounds were trained" in note)
    assert note.startswith("the first 4 rounds were trained with train.optimizer.lr ")
    assert note.endswith(", federate.sample_client_num 3")
    assert note in caplog.text
    # The note outlives another stop.
    assert note in run(config(*goes_on, *more)).notes


@contextlib.contextmanager
def files_of_at_most(size):
    """The system refuses to write more into a file, as if the disk were full."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_last_checkpoint_whole(config, path):
    method = ("ggeur.base_method", "scaffold")
    both = ("federate.save_to", path, "federate.restore_from", path, *method)
    run(config("federate.save_to", path, "federate.total_round_num", 1, *method))
    before = files_at(path)
    for written in (ClientStore(path, 1).path, path):
        problem = r"federate\.save_to: .*cannot write.*File too large"
        most = written.stat().st_size - 1
        with files_of_at_most(most), pytest.raises(ConfigError, match=problem):
            run(config(*both))
    after = files_at(path)
    assert after.keys() == before.keys()
    assert after[path] == before[path]
    results = run(config(*both))
    assert numbers(results)["rounds"] == numbers(run(config(*method)))["rounds"]


class TestLateClients:
    """As in a distributed run, where a client may miss round 0."""

    def test_are_in_the_next_checkpoint(self, path):
        handshake = Handshake(("a", "b", "c", "d"), 6, "none", {})
        first = carrier(quorum=1)
        first.faults["prepare", 0, 2] = lost
        round0 = first.round0()
        writer = CheckpointWriter(path, handshake)
        writer.write(Snapshot.of(first.coordinator, round0, []), first.coordinator)
        first.faults.clear()
        first.membership.come_back(2)
        rounds = first.rounds(1)
        writer.write(Snapshot.of(first.coordinator, round0, rounds), first.coordinator)
        second = carrier(quorum=1)
        progress = restore(path, second.coordinator, handshake)
        assert (progress.round0, progress.rounds) == (round0, rounds)
        assert second.server.aggregation_weights.keys() == {1, 2, 3, 4}
        assert torch.equal(second.server.params, first.server.params)
        second.rounds(2)
        first.rounds(2)
        assert torch.equal(second.server.params, first.server.params)


def test_a_client_s_state_with_a_flipped_bit_or_of_another_is_refused(path):
    store = ClientStore(path, 3)
    states = {4: {"a": torch.arange(3.0)}, 7: {"a": torch.ones(3)}}
    store.save(states)
    whole = store.path.read_bytes()
    for at in range(len(whole)):
        store.path.write_bytes(flipped(whole, at))
        with pytest.raises(ConfigError, match=r"restore_from: .*client_0003"):
            store.load()
    store.path.write_bytes(whole)
    assert store.load()[7]["a"].equal(states[7]["a"])
    other = ClientStore(path, 4)
    other.path.write_bytes(whole)
    with pytest.raises(ConfigError, match=r"client_0004.*own number, got 3"):
        other.load()


def test_a_state_that_cannot_be_kept_ends_a_run_only_where_somebody_named_a_place(
    tmp_path, caplog
):
    (tmp_path / "point.clients").write_text("a file in the way")
    states = {1: {"a": torch.ones(2)}}
    with pytest.raises(ConfigError, match="save_to"):
        ClientStore(tmp_path / "point", 3).save(states)
    store = ClientStore(tmp_path / "point", 3, asked=False)
    store.save(states)
    store.save(states)
    assert caplog.text.count("the state of client 3 can no longer be saved: ") == 1


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


class TestWhereItIsWritten:
    @pytest.mark.parametrize(
        ("place", "problem"),
        [
            ("", "is a folder; name a file"),
            ("file/checkpoint", "the folder of"),
            ("x" * 300, "cannot be used as a file name"),
            ("x" * 250, "cannot be used as a file name"),
            ("file", "or no checkpoint"),
        ],
    )
    def test_a_place_that_cannot_hold_it_is_refused_before_the_run(
        self, config, tmp_path, place, problem
    ):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(ConfigError, match=rf"federate\.save_to: .*{problem}"):
            Run(config("federate.save_to", tmp_path / place))
        assert (tmp_path / "file").read_text() == "mine"

    def test_another_run_s_checkpoint_stays(self, config, kept, tmp_path):
        before, other = files_at(kept), tmp_path / "other"
        run(config("federate.save_to", other))
        for settings in ([], ["federate.restore_from", other]):
            message = r"save_to: .*checkpoint' is a checkpoint of"
            with pytest.raises(ConfigError, match=message):
                Run(config("federate.save_to", kept, *settings))
        assert files_at(kept) == before

    def test_of_two_runs_that_start_together_one_is_refused(self, config, path):
        first = Run(config("federate.save_to", path))
        second = Run(config("federate.save_to", path, "seed", 1))
        course = first.engine.run()
        next(course)
        path.rename(path.with_name("before"))  # as if round 0 were not over
        for begin in (
            lambda: Run(config("federate.save_to", path)),
            lambda: next(second.engine.run()),
        ):
            with pytest.raises(ConfigError, match="where another run is at work"):
                begin()
        path.with_name("before").rename(path)
        assert checkpoint_rounds(path) == 0
        course.close()
        with pytest.raises(ConfigError, match="is a checkpoint of another run"):
            next(second.engine.run())
        written = [one.history.checkpoints.is_written for one in (first, second)]
        assert written == [True, False]  # only the first is told how to go on

    def test_a_run_that_fails_in_round_0_leaves_nothing(self, config, path):
        def fail(request, replies):
            raise MemoryError

        one = Run(config("federate.save_to", path))
        one.engine.listen = fail
        with pytest.raises(MemoryError):
            next(one.engine.run())
        assert not files_at(path)
        run(config("federate.save_to", path))

    def test_a_run_that_goes_on_may_write_over_its_own(self, config, kept, tmp_path):
        copy = tmp_path / "copy"
        copy.write_bytes(kept.read_bytes())
        copy.with_name("copy.round0").write_bytes(
            kept.with_name("checkpoint.round0").read_bytes()
        )
        more = ("federate.total_round_num", 5, "federate.save_to", kept)
        run(config("federate.restore_from", copy, *more))
        assert checkpoint_rounds(kept) == 5

    def test_a_client_s_state_that_is_newer_is_refused(self, config, path):
        settings = ("ggeur.base_method", "scaffold")
        run(config("federate.save_to", path, *settings))
        store = ClientStore(path, 2)
        last = {n: state for n, state in store.load().items() if n == 4}
        first = config(
            "federate.total_round_num", 1, "federate.save_to", path, *settings
        )
        for file in (path, path.with_name("checkpoint.round0")):
            file.unlink()
        run(first)
        store.save(last)
        again = config("federate.restore_from", path, *settings)
        problem = "client_0002.*state is of round 4, but the checkpoint is of round 1"
        refused(again, problem)
