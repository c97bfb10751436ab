"""What a run leaves where every client has a model of its own, and who predicts by it.

The files themselves are said by tests/models/test_models_base.py.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from own_models import METHODS, accuracy, own_words, write_config, write_tests

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.commands.console import run_with_files
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.methods import METHODS as REGISTERED
from federatedscope_ggeur.methods import Method, register_method
from federatedscope_ggeur.predictor.predictor import Predictor
from federatedscope_ggeur.reporting import read_results


@pytest.fixture(scope="module", autouse=True)
def _forget():
    """The user's method is gone behind the module's tests."""
    kept = dict(REGISTERED._parts)
    yield
    REGISTERED._parts = kept
    sys.modules.pop("halfway_of_a_user", None)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def config(place):
    """The checked config of a run of a method, with further settings."""
    quickstart = Path(__file__).parents[3] / "scripts/example_configs"
    path = write_config(place, quickstart / "ggeur_quickstart.yaml")

    def checked(method, *settings):
        words = own_words(method, place / "cache")
        return load_config(path, [*words, "outdir", str(place), *map(str, settings)])

    return checked


@pytest.fixture(scope="module")
def left(config, place):
    """The folder of a run of a method that is over."""
    folders = {}

    def of(method):
        if method not in folders:
            cfg = config(method, "expname", method, "verbose", 0)
            assert run_with_files(cfg) == 0
            folders[method] = place / method
        return folders[method]

    return of


@pytest.fixture(scope="module")
def data(config):
    return Run(config("fedavg")).data


@pytest.fixture(scope="module")
def files(data, place):
    return write_tests(data, place / "tests")


def share(results, clients, whose=lambda client: client.number):
    """Of each domain the share of its clients' test rows that are predicted right."""
    right, total = {}, {}
    for client in clients:
        found = results.predict(client.test.features, whose(client))
        hits = int((found == client.test.labels.numpy()).sum())
        right[client.domain] = right.get(client.domain, 0) + hits
        total[client.domain] = total.get(client.domain, 0) + len(found)
    shares = {domain: right[domain] / rows for domain, rows in total.items() if rows}
    return pytest.approx(shares, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_all_predict_what_the_table_says(method, config, left, data, files):
    folder = left(method)
    results = Run(config(method)).follow(lambda record: None)
    scored = results.rounds[-1].accuracy
    assert read_results(folder).rounds[-1].accuracy == scored
    assert results.final.scored == "clients"
    assert scored == share(results, data.clients)
    found = accuracy(data, files, lambda number: folder)
    assert found == pytest.approx(scored, abs=1e-12)
    other = accuracy(data, files, lambda number: folder, lambda number: number % 4 + 1)
    assert other != pytest.approx(scored, abs=1e-12)
    rows = torch.cat([client.test.features[:2] for client in data.clients])
    mixed = results.predict_proba(rows, np.array([1, 1, 2, 2, 3, 3, 4, 4]))
    for client in data.clients:
        k = client.number
        alone = results.predict_proba(client.test.features[:2], k)
        assert mixed[2 * k - 2 : 2 * k] == pytest.approx(alone, abs=1e-6)
    assert (folder / "head.safetensors").exists() == (method != "local")


@pytest.mark.slow
def test_predict_needs_no_plugin_of_the_method(left, files, monkeypatch):
    folder, images = left("halfway"), list(map(str, files[1]))
    wanted = list(Predictor(folder).predict(images, clients=1))
    kept = {name: part for name, part in REGISTERED.items() if name != "halfway"}
    monkeypatch.setattr(REGISTERED, "_parts", kept)
    assert list(Predictor(folder).predict(images, clients=1)) == wanted


@pytest.mark.slow
def test_a_number_says_whose_model_and_0_is_the_global_one(config, data):
    results = Run(config("fedbn")).follow(lambda record: None)
    rows = data.clients[0].test.features
    whole = r"clients: .*1 \(clean\), 2 \(inverted\), 3 \(blurred\), 4 \(noisy\)"
    with pytest.raises(DataError, match=whole):
        results.predict(rows)
    averaged = results.model.in_chunks(results.model, rows).argmax(dim=1).numpy()
    assert np.array_equal(results.predict(rows, 0), averaged)
    plain = Run(config("fedavg")).follow(lambda record: None)
    assert (plain.final.scored, plain.own_models) == ("global", None)
    assert np.array_equal(plain.predict(rows), plain.predict(rows, 3))


@pytest.mark.slow
@pytest.mark.parametrize("numbers", ["2", "1,2,3,1"])
def test_one_number_for_all_images_or_for_each(left, files, predict, numbers):
    folder = left("fedbn")
    whose = [int(k) for k in numbers.split(",")] * (4 if len(numbers) == 1 else 1)
    paths = [str(files[k][0]) for k in (1, 2, 3, 1)]
    rows = json.loads(predict(folder, *paths, "--json", "--clients", numbers).out)
    for path, number, row in zip(paths, whose, rows):
        (one,) = Predictor(folder).predict([path], clients=number)
        assert row["classes"][0]["class"] == one.classes[0][0]
        assert row["classes"][0]["probability"] == pytest.approx(one.classes[0][1])


ONE, MIXED = "client_1.safetensors", "head.safetensors are not from the same run"
SPOILT = {
    "elsewhere": (lambda h, other: (h / ONE).unlink(), "own model is not in"),
    "another client's": (
        lambda h, other: shutil.copy(h / "client_2.safetensors", h / ONE),
        "holds the model of another client than 1",
    ),
    # It holds what differs from its own run's global model alone.
    "another run's": (lambda h, other: shutil.copy(other / "heads" / ONE, h), MIXED),
    "no global one": (lambda h, other: (h.parent / "head.safetensors").unlink(), MIXED),
    "damaged": (lambda h, other: (h / ONE).write_bytes(b"no"), "is damaged"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "said"), SPOILT.values(), ids=SPOILT)
def test_files_that_do_not_fit_are_named(left, tmp_path, files, spoil, said):
    folder = tmp_path / "copied"
    shutil.copytree(left("fedbn"), folder)
    spoil(folder / "heads", left("silobn"))
    with pytest.raises(DataError) as caught:
        list(Predictor(folder).predict([str(files[1][0])], clients=1))
    assert said in str(caught.value)


class Stop(Exception):
    """A run is cut off."""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedbn", "halfway"])
def test_a_run_that_is_cut_off_leaves_the_models_of_its_last_round(
    method, config, data
):
    run = Run(config(method))
    assert dict(run.history.own_bytes()) == {}
    records = run.engine.run()
    for _ in range(2):
        next(records)  # round 0 and round 1
    at_one = run.history.results("interrupted")

    def listen(request, replies):
        if request.kind.name == "evaluate":
            raise Stop

    run.engine.listen = listen
    with pytest.raises(Stop):
        next(records)
    cut = run.history.results("interrupted")
    assert cut.rounds[-1].round == 1
    assert cut.rounds[-1].accuracy == share(cut, data.clients)
    rows = data.clients[0].test.features
    assert np.array_equal(at_one.predict_proba(rows, 1), cut.predict_proba(rows, 1))


@pytest.mark.slow
def test_where_the_server_scores_there_is_one_model(config, data):
    """FedBN's global model, with the mean of all clients' layers, is what it scores."""
    run = Run(config("fedbn", "federate.make_global_eval", True))
    results = run.follow(lambda record: None)
    assert results.final.scored == "global"
    assert dict(run.history.own_bytes()) == {}
    scored = results.rounds[-1].accuracy
    assert scored == share(results, data.clients, lambda client: None)


@pytest.mark.slow
def test_calibrated_models_are_each_client_s_too(config, data):
    run = Run(config("fedbn", "ggeur.calibrate", "ccvr"))
    results = run.follow(lambda record: None)
    assert results.calibrated.accuracy == share(results, data.clients)


@pytest.fixture
def heads(embeddings_folder, place):
    """Runs of three rounds on embeddings."""

    def begun(*settings):
        words = [
            "data.type", "embeddings@ggeur", "data.root", embeddings_folder,
            "federate.client_num", 3, "federate.total_round_num", 3,
            "ggeur.privacy.min_samples", 2, "ggeur.steps", [], *settings,
        ]  # fmt: skip
        return Run(load_config(place / "own.yaml", list(map(str, words))))

    return begun


@pytest.mark.usefixtures("config")
def test_heads_trained_in_a_space(heads):
    """What a user's method scores is folded back, once."""
    run = heads(
        "federate.client_num", 6, "ggeur.plugins", "['halfway_of_a_user']",
        "ggeur.base_method", "halfway", "federate.unseen_clients_rate", "0.3",
        "ggeur.space", "standard",
    )  # fmt: skip
    results = run.follow(lambda record: None)
    unseen = set(run.engine.server.unseen)
    last = results.rounds[-1]
    assert unseen
    for scored, apart in ((last.accuracy, False), (last.unseen_clients, True)):
        clients = [c for c in run.data.clients if (c.number in unseen) == apart]
        assert scored == share(results, clients)


class MeanOfRounds(Method):
    """Scores others than those that the next round begins with."""

    def initial_state(self, params, context):
        return {"sum": torch.zeros_like(params), "rounds": torch.zeros(1)}

    def step(self, params, updates, state, context):
        after, _ = super().step(params, updates, state, context)
        summed = {"sum": state["sum"] + after, "rounds": state["rounds"] + 1}
        return after, summed

    def scored_params(self, params, state):
        return state["sum"] / state["rounds"] if state["rounds"] else params


@pytest.mark.usefixtures("config")
class TestWeightsOfTheServer:
    @pytest.fixture(autouse=True)
    def _mean_of_rounds(self, monkeypatch):
        monkeypatch.setattr(REGISTERED, "_parts", dict(REGISTERED._parts))
        register_method("mean_of_rounds")(MeanOfRounds)

    @pytest.mark.parametrize("space", ["raw", "standard"])
    @pytest.mark.parametrize("server", [True, False])
    def test_they_are_scored_and_left(self, heads, space, server):
        words = ["ggeur.space", space, "federate.make_global_eval", server]
        mean, plain = (
            heads("ggeur.base_method", "mean_of_rounds", *words),
            heads(*words),
        )
        after = [plain.engine.server.params for _ in plain.engine.run()][1:]
        results = mean.follow(lambda record: None)
        # Training is FedAvg's, to the bit; what is scored is the mean.
        assert torch.equal(mean.engine.server.params, after[-1])
        assert torch.allclose(
            mean.engine.server.scored_params, sum(after) / 3, atol=1e-6
        )
        scored = results.rounds[-1].accuracy
        assert scored == share(results, mean.data.clients, lambda client: None)
        assert results.final.scored == "global"

    def test_a_restored_run_leaves_them_too(self, heads, tmp_path):
        words, point = ["ggeur.base_method", "mean_of_rounds"], tmp_path / "point"
        kept = ["federate.save_to", point, "federate.total_round_num", 2]
        heads(*words, *kept).follow(lambda record: None)
        on, whole = heads(*words, "federate.restore_from", point), heads(*words)
        found, wanted = (run.follow(lambda record: None) for run in (on, whole))
        assert found.rounds[-1].accuracy == wanted.rounds[-1].accuracy
        assert on.history.head_bytes() == whole.history.head_bytes()

    def test_a_calibrated_head_is_of_them_and_is_the_one_left(self, heads):
        words = ["ggeur.base_method", "mean_of_rounds", "ggeur.calibrate", "ccvr"]
        one = heads(*words, "ggeur.mlp_hidden_dim", 6)
        results = one.follow(lambda record: None)
        found = share(results, one.data.clients, lambda client: None)
        assert results.calibrated.accuracy == found
