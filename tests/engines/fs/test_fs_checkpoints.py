"""Checkpoints inside FederatedScope (FS), and across the engines."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from standalone import outcome

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting import Round0

pytestmark = pytest.mark.slow

ROUNDS = ("federate.total_round_num", 4)
SETTINGS = {
    "plain": ["ggeur.steps", []],
    "prototypes of clients": ["federate.client_num", 6, "ggeur.prototypes", "client"],
    "sampled": ["federate.client_num", 6, "federate.sample_client_num", 2],
    "unseen": ["federate.client_num", 8, "federate.unseen_clients_rate", 0.5],
    "mlp": ["ggeur.mlp_hidden_dim", 6, "model.dropout", 0.2, "ggeur.noise", "fresh"],
}


class Stop(Exception):
    pass


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
        if last is not None:
            _stop_after(run, last)
            with pytest.raises(Stop):
                run.go()
            return None
        return outcome(run.go().results)

    return {"embedded": embedded, "standalone": standalone}


def _stop_after(run, last: int) -> None:
    server = run.server
    begin = server.broadcast_model_para

    def stopping(*args, **kwargs):
        if server.state == last:
            raise Stop
        begin(*args, **kwargs)

    server.broadcast_model_para = stopping


WAYS = [
    ("standalone", "standalone"),
    ("embedded", "standalone"),
    ("standalone", "embedded"),
]


@pytest.mark.parametrize(("first", "second"), WAYS)
@pytest.mark.parametrize(
    ("name", "last"), [("sampled", 0), *((name, 2) for name in SETTINGS)]
)
def test_a_run_that_was_stopped_ends_with_the_same_results(
    engines, tmp_path, first, second, last, name
):
    settings, path = SETTINGS[name], tmp_path / "kept" / "checkpoint"
    engines[first](*settings, "federate.save_to", path, last=last)
    results = engines[second](*settings, "federate.restore_from", path)
    assert results == engines["embedded"](*settings)


@pytest.mark.parametrize(("first", "second"), WAYS)
@pytest.mark.parametrize("method", ["scaffold", "feddyn"])
def test_a_method_s_states_go_on(engines, tmp_path, first, second, method):
    path = tmp_path / "checkpoint"
    settings = [*SETTINGS["sampled"], "ggeur.base_method", method]
    engines[first](*settings, "federate.save_to", path, last=2)
    results = engines[second](*settings, "federate.restore_from", path)
    assert results == engines["embedded"](*settings)


def test_both_engines_write_the_same_checkpoint(engines, tmp_path):
    """All tensors to the bit; the run's id and the times are their own."""
    found = {}
    for name, engine in engines.items():
        path = tmp_path / name
        engine("federate.save_to", path, last=2)
        for file in (path, path.with_name(f"{name}.round0")):
            for key, tensor in load_file(file).items():
                before = found.setdefault((file.suffix, key), tensor)
                assert before.equal(tensor), key
    assert {("", "params"), (".round0", "augmentation.geometry")} <= found.keys()


def test_a_run_that_was_over_ends_at_once_and_can_be_made_longer(engines, tmp_path):
    path = tmp_path / "checkpoint"
    over = engines["standalone"]("federate.save_to", path)
    assert engines["standalone"]("federate.restore_from", path) == over
    more = ("federate.total_round_num", 6)
    results = engines["standalone"]("federate.restore_from", path, *more)
    assert results == engines["embedded"](*more)


def test_a_checkpoint_of_another_run_is_refused(engines, tmp_path):
    path = tmp_path / "checkpoint"
    engines["standalone"]("federate.save_to", path, last=1)
    with pytest.raises(ConfigError, match=r"restore_from.*other settings: .*seed"):
        engines["standalone"]("federate.restore_from", path, "seed", 5)


@pytest.mark.parametrize("engine", ["embedded", "standalone"])
class TestFilesOfFS:
    """FS pickles ``{"cur_round": ..., "model": state dict}``."""

    def test_weights_alone_start_a_run(self, engines, fs, tmp_path, engine):
        from federatedscope.core.aggregators import ClientsAvgAggregator

        path = tmp_path / "fs.pt"
        trained = fs.run()
        ClientsAvgAggregator(trained.server.model, config=trained.config).save_model(
            path, cur_round=3
        )
        results = engines[engine]("federate.restore_from", path)
        rounds = results["rounds"]
        assert [record["round"] for record in rounds] == [1, 2, 3, 4]
        assert rounds[0]["avg"] > trained.results.rounds[0].avg
        assert results == engines["embedded"]("federate.restore_from", path)

    def test_a_malicious_pickle_runs_nothing(self, engines, tmp_path, engine):
        class Payload:
            def __reduce__(self):
                return (Path.touch, (tmp_path / "executed",))

        weights = {"classifier.weight": torch.zeros(1)}
        contents = [
            Payload(),
            {"cur_round": 1, "model": Payload()},
            {"cur_round": Payload(), "model": weights},
        ]
        for number, content in enumerate(contents):
            path = tmp_path / f"malicious_{number}"
            if number == 0:
                path.write_bytes(pickle.dumps(content))
            else:
                torch.save(content, path)
            with pytest.raises(ConfigError, match=r"federate\.restore_from"):
                engines[engine]("federate.restore_from", path)
        assert not (tmp_path / "executed").exists()

    def test_a_missing_file_is_an_error(self, engines, tmp_path, engine):
        with pytest.raises(ConfigError, match=r"no_such.*cannot be read"):
            engines[engine]("federate.restore_from", tmp_path / "no_such")
