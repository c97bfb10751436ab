"""What is not taken for a checkpoint, and what a full disk leaves of one."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from carrier import carrier, lost
from kept_rounds import checkpoint_rounds

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.course.checkpoint import (
    CheckpointWriter,
    Snapshot,
    restore,
)
from federatedscope_ggeur.federation.course.client_handler import ClientStore
from federatedscope_ggeur.federation.wire import pack, sealed, unpack
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.reporting import numbers


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "checkpoint"


@pytest.fixture
def kept(config, path):
    """The checkpoint of a run of three rounds."""
    run(config("federate.save_to", path))
    return path


def refused(cfg, problem, data=None):
    with pytest.raises(ConfigError, match=rf"federate\.restore_from: .*{problem}"):
        Run(cfg, data)


def files_at(path):
    return {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}


def test_a_pickle_is_refused_unread(config, path, tmp_path):
    """FederatedScope's own checkpoints are pickles."""

    class Attack:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    path.parent.mkdir()
    torch.save({"cur_round": 3, "model": Attack()}, path)
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

    def test_a_client_s_file_that_is_broken(self, config, path):
        moon = ("ggeur.base_method", "moon")
        run(config("federate.save_to", path, *moon))
        again = config("federate.restore_from", path, *moon)
        file = ClientStore(path, 2).path
        whole = file.read_bytes()
        file.write_bytes(whole[:100])
        refused(again, "client_0002.*not a message")
        file.write_bytes(ClientStore(path, 1).path.read_bytes())
        refused(again, "client_0002.*own number, got 1")
        file.write_bytes(whole.replace(b"state.2.", b"state.9."))
        refused(again, "client_0002")


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


class TestAFullDisk:
    def fails(self, engine, size):
        with (
            files_of_at_most(size),
            pytest.raises(
                ConfigError, match=r"federate\.save_to: .*cannot write.*File too large"
            ),
        ):
            for _ in engine.run():
                pass

    def test_leaves_the_last_checkpoint_whole(self, config, path):
        method = ("ggeur.base_method", "scaffold")
        both = ("federate.save_to", path, "federate.restore_from", path, *method)
        run(config("federate.save_to", path, "federate.total_round_num", 1, *method))
        before = files_at(path)
        size = ClientStore(path, 1).path.stat().st_size
        self.fails(Run(config(*both)).engine, size - 1)
        self.fails(Run(config(*both)).engine, path.stat().st_size - 1)
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


def test_every_flipped_bit_of_a_client_s_state_is_found(path):
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
            with pytest.raises(
                ConfigError, match=r"save_to: .*checkpoint' is a checkpoint of"
            ):
                Run(config("federate.save_to", kept, *settings))
        assert files_at(kept) == before

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
        last = {n: state for n, state in store.load().items() if n == 3}
        first = config(
            "federate.total_round_num", 1, "federate.save_to", path, *settings
        )
        for file in (path, path.with_name("checkpoint.round0")):
            file.unlink()
        run(first)
        store.save(last)
        again = config("federate.restore_from", path, *settings)
        refused(
            again, "client_0002.*state is of round 3, but the checkpoint is of round 1"
        )
