"""Runs that are stopped and go on from their checkpoint, on the embedded engine."""

from __future__ import annotations

import pytest
from every_method import ADDED, FEDERATED

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting import Round0, numbers

ROUNDS = ("federate.total_round_num", 4)
SAMPLED = ("federate.client_num", 6, "federate.sample_client_num", 2)
#: FedMix, FedGen and FedFA send tensors up in round 0; the others, and FedGen, keep a
#: state on clients, on the server, or on both. Augmentations stand beside SCAFFOLD.
STATEFUL = (
    *(name for name, method in FEDERATED.items() if method.keeps_state),
    *ADDED,
)
SERVERS = {
    "fedavgm": [],
    "fedproto": [],
    "fedopt": ["fedopt.optimizer.type", "Adam", "fedopt.optimizer.lr", 0.1],
}


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
    for record in Run(cfg).engine.run():
        done = 0 if isinstance(record, Round0) else record.round
        if done == last:
            return
    raise AssertionError(f"there was no round {last}")


@pytest.fixture
def config_of(config):
    """Like `config`, for a method."""

    def load(method, *settings):
        if method not in ADDED:
            return config("ggeur.base_method", method, *settings)
        both = "ggeur.base_method", "scaffold", "ggeur.augmentation", method
        few = "ggeur.privacy.min_samples", 2
        return config(*both, *few, *settings)

    return load


def files_at(path):
    return {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("last", [0, 2])
@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.steps", []],
        ["ggeur.steps", [1]],
        ["ggeur.steps", [1, 2]],
        ["ggeur.prototypes", "client", "federate.client_num", 6],
        ["ggeur.mlp_hidden_dim", 6, "model.dropout", 0.2],
        SAMPLED,
        ["federate.client_num", 6, "federate.unseen_clients_rate", 0.5],
        ["federate.make_global_eval", True, "eval.freq", 3],
        ["ggeur.noise", "fresh", "ggeur.memory_limit", 0],
    ],
    ids=str,
)
def test_a_run_that_was_stopped_ends_with_the_same_results(
    config, path, settings, last
):
    stop_after(config("federate.save_to", path, *settings), last)
    results = run(config("federate.restore_from", path, *settings))
    assert outcome(results) == outcome(run(config(*settings)))


@pytest.mark.parametrize("method", ["local", "moon", "scaffold", "feddyn"])
def test_without_the_state_of_a_client_a_run_does_not_go_on(config, path, method):
    chosen = ["ggeur.base_method", method]
    stop_after(config("federate.save_to", path, *chosen), 2)
    (path.parent / f"{path.name}.clients" / "client_0002.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"client_0002.* of client 2 is missing"):
        run(config("federate.restore_from", path, *chosen))


@pytest.mark.parametrize("method", STATEFUL)
class TestStatefulMethods:
    @pytest.fixture
    def config(self, config_of, method):
        return lambda *settings: config_of(method, *SAMPLED, *settings)

    @pytest.mark.slow
    @pytest.mark.parametrize("last", [0, 1, 2])
    def test_states_and_uploads_of_round_0_go_on(self, config, path, last):
        stop_after(config("federate.save_to", path), last)
        results = run(config("federate.restore_from", path))
        assert outcome(results) == outcome(run(config()))

    def test_a_round_that_was_cut_off_is_repeated(self, config, path):
        stop_after(config("federate.save_to", path), 2)
        before = path.read_bytes()
        both = ("federate.save_to", path, "federate.restore_from", path)
        stop_after(config(*both), 3)
        path.write_bytes(before)  # the clients' files are of round 3
        results = run(config(*both))
        assert outcome(results) == outcome(run(config()))

    def test_a_second_stop_elsewhere(self, config, path, tmp_path):
        stop_after(config("federate.save_to", path), 1)
        second = ("federate.restore_from", path, "federate.save_to", tmp_path / "other")
        stop_after(config(*second), 2)
        results = run(config("federate.restore_from", tmp_path / "other"))
        assert outcome(results) == outcome(run(config()))

    @pytest.mark.slow
    def test_states_of_an_earlier_run_are_not_taken(self, config, path):
        save = ("federate.save_to", path)
        stop_after(config(*save, "seed", 1), 1)
        states = files_at(path)
        for last in (0, 1):
            path.unlink()  # or nothing would be written there
            stop_after(config(*save), last)
            if last == 0:  # as if it had been cut off before it took them away
                for file in states.keys() - files_at(path).keys():
                    file.write_bytes(states[file])
            results = run(config("federate.restore_from", path))
            assert outcome(results) == outcome(run(config()))


@pytest.mark.parametrize("method", SERVERS)
def test_a_state_of_the_server_alone_goes_on(config, path, method):
    settings = ("ggeur.base_method", method, *SERVERS[method])
    stop_after(config("federate.save_to", path, *settings), 2)
    results = run(config("federate.restore_from", path, *settings))
    assert outcome(results) == outcome(run(config(*settings)))


def test_the_whole_run_is_there_when_it_was_over(config, path):
    first = run(config("federate.save_to", path))
    following = Run(config("federate.restore_from", path))
    again = following.follow(lambda record: None)
    assert outcome(again) == outcome(first)
    assert again.rounds == first.rounds  # times included: nothing ran twice


def test_more_rounds_may_follow(config, path):
    more = ("federate.total_round_num", 6)
    run(config("federate.save_to", path))
    assert outcome(run(config("federate.restore_from", path, *more))) == outcome(
        run(config(*more))
    )


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


@pytest.mark.parametrize(
    ("place", "problem"),
    [("", "is a folder; name a file"), ("file/checkpoint", "the folder of")],
)
def test_a_place_that_cannot_hold_it_is_refused_before_the_run(
    config, tmp_path, place, problem
):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=rf"federate\.save_to: .*{problem}"):
        Run(config("federate.save_to", tmp_path / place))
