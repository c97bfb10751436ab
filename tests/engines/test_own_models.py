"""What a run leaves where every client has a model of its own."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from own_models import METHODS, accuracy, own_words, write_config, write_tests
from safetensors import safe_open
from safetensors.torch import load_file

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.commands.console import run_with_files
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.methods import METHODS as REGISTERED
from federatedscope_ggeur.methods import Method, register_method
from federatedscope_ggeur.predictor.left_models import LeftModels
from federatedscope_ggeur.predictor.predictor import Predictor
from federatedscope_ggeur.reporting import Results, read_results, results_table

pytestmark = pytest.mark.slow


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
    quickstart = Path(__file__).parents[2] / "scripts/example_configs"
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


def hits(results, data, clients) -> dict[str, float]:
    return {
        client.domain: np.mean(
            results.predict(client.test.features, clients(client))
            == client.test.labels.numpy()
        )
        for client in data.clients
    }


@pytest.mark.parametrize("method", METHODS)
def test_predict_gives_what_the_table_says(method, left, data, files):
    folder = left(method)
    scored = read_results(folder).rounds[-1].accuracy
    found = accuracy(data, files, lambda number: folder)
    assert found == pytest.approx(scored, abs=1e-12)
    other = accuracy(data, files, lambda number: folder, lambda number: number % 4 + 1)
    assert other != pytest.approx(scored, abs=1e-12)


def test_predict_needs_no_plugin_of_the_method(left, files, monkeypatch):
    folder, images = left("halfway"), list(map(str, files[1]))
    wanted = list(Predictor(folder).predict(images, clients=1))
    kept = {name: part for name, part in REGISTERED.items() if name != "halfway"}
    monkeypatch.setattr(REGISTERED, "_parts", kept)
    assert list(Predictor(folder).predict(images, clients=1)) == wanted


@pytest.mark.parametrize("method", METHODS)
def test_results_predict_what_the_table_says(method, config, data):
    results = Run(config(method)).follow(lambda record: None)
    scored = results.rounds[-1].accuracy
    found = hits(results, data, lambda client: client.number)
    assert found == pytest.approx(scored, abs=1e-12)
    one_each = hits(results, data, lambda c: [c.number] * len(c.test))
    assert one_each == found
    rows = torch.cat([client.test.features[:2] for client in data.clients])
    mixed = results.predict_proba(rows, np.array([1, 1, 2, 2, 3, 3, 4, 4]))
    for client in data.clients:
        k = client.number
        alone = results.predict_proba(client.test.features[:2], k)
        assert mixed[2 * k - 2 : 2 * k] == pytest.approx(alone, abs=1e-6)


def test_without_a_number_it_is_refused_with_the_clients(config, data):
    results = Run(config("fedbn")).follow(lambda record: None)
    rows = data.clients[0].test.features
    whole = r"clients: .*1 \(clean\), 2 \(inverted\), 3 \(blurred\), 4 \(noisy\)"
    for given in (None, 5, -1, True, 1.0, ["clean"] * len(rows)):
        with pytest.raises(DataError, match=whole):
            results.predict(rows, given)
    with pytest.raises(DataError, match=f"one for each of the {len(rows)} rows, got 2"):
        results.predict(rows, [1, 2])
    # The global model is there, under a number that no client has.
    averaged = results.model.in_chunks(results.model, rows).argmax(dim=1).numpy()
    assert np.array_equal(results.predict(rows, 0), averaged)


def test_of_a_method_with_one_model_for_all_every_client_has_it(config, data):
    results = Run(config("fedavg")).follow(lambda record: None)
    assert results.final.scored == "global"
    assert results.own_models is None
    assert "scored:" not in results_table(results)
    rows = data.clients[0].test.features
    assert np.array_equal(results.predict(rows), results.predict(rows, 3))
    with pytest.raises(DataError, match="no client 9"):
        results.predict(rows, 9)


def test_the_table_and_results_say_whose_models_were_scored(left):
    results = read_results(left("fedbn"))
    assert results.final.scored == "clients"
    assert "scored: each client's own model" in results_table(results)
    assert Results.from_json(results.to_json()) == results


def test_of_a_network_only_what_differs_is_kept(left):
    """Of FedBN all of its layers, of SiloBN their running statistics."""
    whole = load_file(left("fedbn") / "head.safetensors")
    for method, parts in (("fedbn", 4), ("silobn", 2)):
        for number in (1, 2, 3, 4):
            own = load_file(left(method) / "heads" / f"client_{number}.safetensors")
            layers = {name.rpartition(".")[0] for name in own}
            assert len(own) == parts * len(layers)
            assert all("running_mean" in n or "running_var" in n for n in own) == (
                method == "silobn"
            )
            assert own.keys() < whole.keys()
    alone = load_file(left("local") / "heads" / "client_1.safetensors")
    assert alone.keys() == whole.keys()
    assert not (left("local") / "head.safetensors").exists()


def test_the_files_say_whose_they_are(left):
    path = left("fedbn") / "heads" / "client_3.safetensors"
    with safe_open(str(path), "pt") as file:
        about = file.metadata()
    assert (about["client"], about["domain"]) == ("3", "blurred")
    assert json.loads(about["class_names"])[0] == "0"


def test_the_models_are_read_when_they_are_used(left, tmp_path):
    folder = tmp_path / "copied"
    shutil.copytree(left("fedbn"), folder)
    models = LeftModels(folder).on(dim=64)
    whole = load_file(folder / "head.safetensors")
    own = load_file(folder / "heads" / "client_2.safetensors")
    for number, wanted in ((0, whole), (2, {**whole, **own})):
        found = models.of(number).state_dict()
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    (folder / "heads" / "client_3.safetensors").unlink()
    with pytest.raises(DataError, match=r"client_3.safetensors: the file is damaged"):
        models.of(3)


class TestTheCommand:
    def test_one_number_for_all_images(self, left, files, capsys):
        folder, place = left("fedbn"), files[2][0].parent
        words = ["predict", "--run", str(folder), str(place), "--json"]
        assert main([*words, "--clients", "2"]) == 0
        rows = json.loads(capsys.readouterr().out)
        wanted = Predictor(folder).predict(list(map(str, files[2])), clients=2)
        assert [row["classes"][0]["class"] for row in rows] == [
            one.classes[0][0] for one in wanted
        ]

    def test_one_number_for_each_image(self, left, files, capsys):
        folder = left("fedbn")
        paths = [str(files[k][0]) for k in (1, 2, 3, 1)]
        words = ["predict", "--run", str(folder), *paths, "--json"]
        assert main([*words, "--clients", "1,2,3,1"]) == 0
        rows = json.loads(capsys.readouterr().out)
        for path, number, row in zip(paths, (1, 2, 3, 1), rows):
            (one,) = Predictor(folder).predict([path], clients=number)
            assert row["classes"][0]["class"] == one.classes[0][0]
            assert row["classes"][0]["probability"] == pytest.approx(one.classes[0][1])

    @pytest.mark.parametrize(
        ("clients", "said"),
        [
            ([], "1 (clean), 2 (inverted), 3 (blurred), 4 (noisy)"),
            (["--clients", "7"], "there is no client 7"),
            (["--clients", "1,2"], "one for each of the 1 rows, got 2"),
        ],
    )
    def test_another_is_refused(self, left, files, capsys, clients, said):
        image = str(files[1][0])
        words = ["predict", "--run", str(left("silobn")), image, *clients]
        assert main(words) == 1
        assert said in capsys.readouterr().err


class TestFilesThatDoNotFit:
    @pytest.fixture
    def copied(self, left, tmp_path) -> Path:
        shutil.copytree(left("fedbn"), tmp_path / "copied")
        return tmp_path / "copied"

    def refused(self, folder, files, number=1):
        with pytest.raises(DataError) as caught:
            list(Predictor(folder).predict([str(files[1][0])], clients=number))
        return str(caught.value)

    def test_a_model_that_is_elsewhere(self, copied, files):
        (copied / "heads" / "client_1.safetensors").unlink()
        assert "client 1's own model is not in" in self.refused(copied, files)

    def test_another_client_s(self, copied, files):
        heads = copied / "heads"
        shutil.copy(heads / "client_2.safetensors", heads / "client_1.safetensors")
        assert "holds the model of another client than 1" in self.refused(copied, files)

    def test_another_run_s(self, copied, left, files):
        """It holds what differs from its own run's global model alone."""
        other = left("silobn") / "heads" / "client_1.safetensors"
        shutil.copy(other, copied / "heads" / "client_1.safetensors")
        assert "head.safetensors are not from the same run" in self.refused(
            copied, files
        )

    def test_without_the_global_model(self, copied, files):
        (copied / "head.safetensors").unlink()
        assert "head.safetensors are not from the same run" in self.refused(
            copied, files
        )

    def test_a_damaged_one(self, copied, files):
        (copied / "heads" / "client_1.safetensors").write_bytes(b"nothing")
        assert "is damaged" in self.refused(copied, files)


class TestRunsCutOff:
    """The models left are those after the last round that was over."""

    @pytest.mark.parametrize("method", ["fedbn", "local", "halfway"])
    def test_in_the_middle_of_a_round(self, method, config, data):
        run = Run(config(method))
        records = run.engine.run()
        for _ in range(2):
            next(records)  # round 0 and round 1
        at_one = run.history.results("interrupted")

        class Stop(Exception):
            pass

        def listen(request, replies):
            if request.kind.name == "evaluate":
                raise Stop

        run.engine.listen = listen
        with pytest.raises(Stop):
            next(records)
        cut = run.history.results("interrupted")
        scored = cut.rounds[-1]
        assert scored.round == 1
        found = hits(cut, data, lambda client: client.number)
        assert found == pytest.approx(scored.accuracy, abs=1e-12)
        rows = data.clients[0].test.features
        assert np.array_equal(at_one.predict_proba(rows, 1), cut.predict_proba(rows, 1))

    @pytest.mark.parametrize("method", ["fedbn", "local"])
    def test_a_restored_run_whose_rounds_are_over(self, method, config, data, tmp_path):
        kept = ["federate.save_to", tmp_path / "checkpoint"]
        whole = Run(config(method, *kept))
        wanted = whole.follow(lambda record: None)
        again = Run(config(method, "federate.restore_from", tmp_path / "checkpoint"))
        results = again.follow(lambda record: None)
        assert results.rounds == wanted.rounds
        files = dict(again.history.own_bytes())
        assert files == dict(whole.history.own_bytes())
        found = hits(results, data, lambda client: client.number)
        assert found == pytest.approx(wanted.rounds[-1].accuracy, abs=1e-12)

    def test_before_the_first_round_there_is_none(self, config):
        run = Run(config("local"))
        assert dict(run.history.own_bytes()) == {}


def test_where_the_server_scores_there_is_one_model(config, data):
    """FedBN's global model, with the mean of all clients' layers, is what it scores."""
    run = Run(config("fedbn", "federate.make_global_eval", True))
    results = run.follow(lambda record: None)
    assert results.final.scored == "global"
    assert dict(run.history.own_bytes()) == {}
    found = {
        name: np.mean(results.predict(rows.features) == rows.labels.numpy())
        for name, rows in data.test_sets().items()
    }
    assert found == pytest.approx(results.rounds[-1].accuracy, abs=1e-12)


def test_calibrated_models_are_each_client_s_too(config, data):
    run = Run(config("fedbn", "ggeur.calibrate", "ccvr"))
    results = run.follow(lambda record: None)
    found = hits(results, data, lambda client: client.number)
    assert found == pytest.approx(results.calibrated.accuracy, abs=1e-12)


def test_keep_best_is_refused(config):
    settings = ["ggeur.keep", "best", "ggeur.init", "closed_form"]
    with pytest.raises(ConfigError, match=r"ggeur.keep: must be trained with .*fedbn"):
        Run(config("fedbn", *settings))


def test_heads_trained_in_a_space(embeddings_folder, config, place):
    """What a user's method scores is folded back, once."""
    quickstart = place / "own.yaml"
    words = [
        "data.type", "embeddings@ggeur", "data.root", str(embeddings_folder),
        "federate.client_num", "6", "federate.total_round_num", "3",
        "ggeur.privacy.min_samples", "2", "ggeur.steps", "[]",
        "ggeur.plugins", "['halfway_of_a_user']", "ggeur.base_method", "halfway",
        "federate.unseen_clients_rate", "0.3", "ggeur.space", "standard",
    ]  # fmt: skip
    run = Run(load_config(quickstart, words))
    results = run.follow(lambda record: None)
    unseen = set(run.engine.server.unseen)
    assert unseen
    for of_unseen, scored in (
        (False, results.rounds[-1].accuracy),
        (True, results.rounds[-1].unseen_clients),
    ):
        right, total = {}, {}
        for client in run.data.clients:
            if of_unseen != (client.number in unseen):
                continue
            found = results.predict(client.test.features, client.number)
            n = int((found == client.test.labels.numpy()).sum())
            right[client.domain] = right.get(client.domain, 0) + n
            total[client.domain] = total.get(client.domain, 0) + len(found)
        for domain, rows in total.items():
            if rows:
                assert right[domain] / rows == pytest.approx(scored[domain], abs=1e-12)


class TestWeightsOfTheServer:
    """A method that scores others than those the next round begins with."""

    @pytest.fixture(autouse=True)
    def _mean_of_rounds(self, monkeypatch):
        monkeypatch.setattr(REGISTERED, "_parts", dict(REGISTERED._parts))

        @register_method("mean_of_rounds")
        class MeanOfRounds(Method):
            def initial_state(self, params, context):
                return {"sum": torch.zeros_like(params), "rounds": torch.zeros(1)}

            def step(self, params, updates, state, context):
                after, _ = super().step(params, updates, state, context)
                summed = {"sum": state["sum"] + after, "rounds": state["rounds"] + 1}
                return after, summed

            def scored_params(self, params, state):
                if not state["rounds"]:
                    return params
                return state["sum"] / state["rounds"]

    @pytest.fixture
    def run(self, embeddings_folder, quickstart):
        words = [
            "data.type", "embeddings@ggeur", "data.root", str(embeddings_folder),
            "federate.client_num", "3", "federate.total_round_num", "3",
            "ggeur.privacy.min_samples", "2", "ggeur.steps", "[]",
        ]  # fmt: skip

        def begun(*settings):
            return Run(load_config(quickstart, [*words, *map(str, settings)]))

        return begun

    @pytest.mark.parametrize("space", ["raw", "standard"])
    @pytest.mark.parametrize("server", [True, False])
    def test_they_are_scored_and_left(self, run, space, server):
        words = ["ggeur.space", space, "federate.make_global_eval", server]
        mean = run("ggeur.base_method", "mean_of_rounds", *words)
        heads = []
        plain = run(*words)
        for record in plain.engine.run():
            if hasattr(record, "round"):
                heads.append(plain.engine.server.params)
        results = mean.follow(lambda record: None)
        # Training is FedAvg's, to the bit; what is scored is the mean.
        assert torch.equal(mean.engine.server.params, heads[-1])
        assert torch.allclose(
            mean.engine.server.scored_params, sum(heads) / 3, atol=1e-6
        )
        found = {
            name: np.mean(results.predict(rows.features) == rows.labels.numpy())
            for name, rows in mean.data.test_sets().items()
        }
        assert found == pytest.approx(results.rounds[-1].accuracy, abs=1e-12)
        assert results.final.scored == "global"

    def test_a_restored_run_leaves_them_too(self, run, tmp_path):
        words = ["ggeur.base_method", "mean_of_rounds"]
        kept = [*words, "federate.save_to", tmp_path / "checkpoint"]
        run(*kept, "federate.total_round_num", 2).follow(lambda record: None)
        on = run(*words, "federate.restore_from", tmp_path / "checkpoint")
        whole = run(*words)
        wanted = whole.follow(lambda record: None)
        assert on.follow(lambda record: None).rounds[-1].accuracy == (
            wanted.rounds[-1].accuracy
        )
        assert on.history.head_bytes() == whole.history.head_bytes()

    def test_a_calibrated_head_is_of_them_and_is_the_one_left(self, run):
        words = ["ggeur.base_method", "mean_of_rounds", "ggeur.calibrate", "ccvr"]
        one = run(*words, "ggeur.mlp_hidden_dim", 6)
        results = one.follow(lambda record: None)
        found = {
            name: np.mean(results.predict(rows.features) == rows.labels.numpy())
            for name, rows in one.data.test_sets().items()
        }
        assert found == pytest.approx(results.calibrated.accuracy, abs=1e-12)
