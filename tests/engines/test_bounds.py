"""`ggeur.base_method: local` and `centralised`, on the embedded engine."""

from __future__ import annotations

import logging

import pytest
import torch
from safetensors.torch import load, load_file

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import partition
from federatedscope_ggeur.engines.run import Run, load_data_set, load_federated_data
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import Score, evaluate
from federatedscope_ggeur.models import num_parameters
from federatedscope_ggeur.reporting import Results, Round0, numbers

LOCAL = ("ggeur.base_method", "local")
CENTRALISED = ("ggeur.base_method", "centralised")
SIX = ("federate.client_num", 6)
MLP = ("ggeur.mlp_hidden_dim", 8, "model.dropout", 0.2)


def finished(cfg) -> Run:
    one = Run(cfg)
    one.follow(lambda record: None)
    return one


def kept_heads(run: Run) -> dict[int, torch.Tensor]:
    """Each client's own head, where weights stay with the clients."""
    return {k: client.state["params"] for k, client in run.engine.clients.items()}


def figures(run: Run) -> dict:
    """The numbers of a run, without its settings."""
    kept = numbers(run.history.results())
    return {k: value for k, value in kept.items() if k not in ("config", "notes")}


class TestLocal:
    def test_a_domain_s_score_is_of_its_clients_own_heads(self, config):
        run = finished(config(*LOCAL, *SIX))
        heads, server = kept_heads(run), run.engine.server
        assert not torch.equal(heads[1], heads[4])  # of one domain
        wanted = dict.fromkeys(run.data.domains, Score())
        for held in run.data.clients:
            test = held.test.features, held.test.labels
            wanted[held.domain] += evaluate(server.model, heads[held.number], *test)
        assert run.history.rounds[-1].accuracy == {
            k: s.accuracy for k, s in wanted.items()
        }

    def test_it_does_not_matter_who_should_evaluate(self, config):
        asked = finished(config(*LOCAL, "federate.make_global_eval", True))
        plain = finished(config(*LOCAL))
        assert figures(asked) == figures(plain)
        note = "federate.make_global_eval has no effect with ggeur.base_method: local"
        assert [note in line for line in asked.describe()].count(True) == 1
        assert not any(note in line for line in plain.describe())

    @pytest.mark.parametrize("steps", [[], [1, 2]], ids=str)
    def test_a_round_s_bytes_do_not_depend_on_the_head(self, config, steps):
        settings = [*LOCAL, "ggeur.steps", steps]
        small, large = (
            finished(config(*settings, "ggeur.mlp_hidden_dim", hidden))
            for hidden in (0, 300)
        )
        for one, other in zip(small.history.rounds, large.history.rounds):
            assert one.bytes_up == other.bytes_up > 0
            assert one.bytes_down == other.bytes_down > 0
        model = 4 * num_parameters(large.engine.server.model)
        assert large.history.rounds[-1].bytes_up < model / 10
        assert small.history.round0.statistics_bytes_up.keys() == (
            {"1", "2", "3"} if steps else set()
        )

    def test_geometry_has_an_effect(self, config):
        alone, helped = (
            finished(config(*LOCAL, "ggeur.steps", steps)) for steps in ([], [1, 2])
        )
        assert figures(alone)["rounds"] != figures(helped)["rounds"]

    def test_only_the_drawn_clients_train(self, config):
        run = finished(config(*LOCAL, *SIX, "federate.sample_client_num", 1))
        trained = {k for record in run.history.rounds for k in record.clients}
        assert {k for k, c in run.engine.clients.items() if c.state} == trained
        assert len(trained) < 6
        assert set(run.history.rounds[0].accuracy) == set(run.data.domains)

    @pytest.mark.parametrize("last", [0, 2])
    @pytest.mark.parametrize(
        "settings", [MLP, (*SIX, "federate.sample_client_num", 2)], ids=str
    )
    def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
        self, config, tmp_path, settings, last
    ):
        path = tmp_path / "kept" / "checkpoint"
        settings = [*LOCAL, *settings]
        for record in Run(config(*settings, "federate.save_to", path)).engine.run():
            if (0 if isinstance(record, Round0) else record.round) == last:
                break
        else:
            pytest.fail(f"there was no round {last}")
        restored = finished(config(*settings, "federate.restore_from", path))
        whole = finished(config(*settings))
        assert figures(restored) == figures(whole)
        for k, client in whole.engine.clients.items():
            found = restored.engine.clients[k].state
            assert found.keys() == client.state.keys()
            assert all(torch.equal(found[n], t) for n, t in client.state.items())

    def test_weights_of_fs_cannot_be_a_start(self, config, tmp_path):
        path = tmp_path / "fs.pt"
        model = Run(config()).engine.server.model
        torch.save({"cur_round": 1, "model": model.state_dict()}, path)
        finished(config("federate.restore_from", path))
        with pytest.raises(ConfigError, match=r"restore_from: .*only weights.*local"):
            Run(config(*LOCAL, "federate.restore_from", path))

    def test_there_is_no_head_but_each_client_s_own(
        self, embeddings_folder, tmp_path, monkeypatch, capsys
    ):
        monkeypatch.chdir(tmp_path)
        words = [
            "--cfg", "ggeur_quickstart.yaml",
            "data.type", "embeddings@ggeur",
            "data.root", str(embeddings_folder),
            "federate.client_num", "3",
            "federate.total_round_num", "1",
            "expname", "alone",
            *LOCAL,
        ]  # fmt: skip
        assert main(words) == 0
        folder = tmp_path / "exp" / "alone"
        left = {file.name for file in folder.iterdir()}
        assert "head.safetensors" not in left
        assert {"results.json", "metrics.csv", "curve.png"} <= left
        log = (folder / "log.txt").read_text()
        assert log.count("scored: each client's own model") == 1
        results = Results.from_json((folder / "results.json").read_text())
        assert results.final.avg
        assert results.final.scored == "clients"
        heads = sorted(file.name for file in (folder / "heads").iterdir())
        assert heads == [f"client_{number}.safetensors" for number in (1, 2, 3)]
        assert load_file(folder / "heads" / heads[0]).keys() == {
            "classifier.weight",
            "classifier.bias",
        }

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("ggeur.unseen_domains", "['photo']"),
            ("federate.unseen_clients_rate", 0.5),
            ("ggeur.calibrate", "ccvr"),
            ("ggeur.closed_form", "ncm"),
            ("ggeur.augmentation", "fedmix"),
            ("ggeur.augmentation", "fedgen"),
            ("ggeur.augmentation", "fedfa"),
        ],
    )
    def test_what_needs_a_federation_is_refused_by_name(self, config, key, value):
        with pytest.raises(ConfigError, match=rf"  {key}: .*local"):
            config(*LOCAL, *SIX, key, value)


class TestCentralised:
    def test_one_client_trains_on_every_row(self, config):
        settings = [*SIX, "ggeur.steps", []]
        divided = load_federated_data(config(*settings))
        run = finished(config(*CENTRALISED, *settings))
        (client,) = run.engine.clients.values()
        rows = torch.cat([held.train.features for held in divided.clients])
        assert torch.equal(client.features, rows)
        assert (client.number, client.domain) == (1, "all domains")
        assert all(record.clients == [1] for record in run.history.rounds)
        assert client.aggregation_weight == len(rows)

    def test_scores_are_of_whole_test_sets_by_domain(self, config):
        run = finished(config(*CENTRALISED, *SIX))
        results = run.history.results()
        assert results.domains == ["art", "photo", "sketch"]
        tests = load_federated_data(config(*SIX)).test_sets()
        server = run.engine.server
        for name, test in tests.items():
            score = evaluate(server.model, server.params, test.features, test.labels)
            assert results.rounds[-1].accuracy[name] == score.accuracy
        assert results.final.avg > 0.5

    @pytest.mark.parametrize(
        "settings",
        [
            ("federate.make_global_eval", True),
            ("ggeur.quorum", 5),
            ("federate.sample_client_num", 4),
            ("federate.sample_client_rate", 0.1),
            ("ggeur.prototypes", "client"),
            ("federate.ignore_weight", True),
        ],
        ids=str,
    )
    def test_settings_of_many_clients_change_nothing(self, config, settings):
        plain = finished(config(*CENTRALISED, *SIX))
        run = finished(config(*CENTRALISED, *SIX, *settings))
        assert figures(run) == figures(plain)

    def test_the_splitter_still_says_which_rows_there_are(self, config):
        share = ["data.splitter", "domain", "data.splitter_args", "[{'fraction': 0.1}]"]
        few = Run(config(*CENTRALISED, *share))
        many = Run(config(*CENTRALISED, *SIX, *share))
        rows = [len(run.data.clients[0].train) for run in (few, many)]
        assert rows[1] > 1.5 * rows[0]
        assert many.history.results().config["federate"]["client_num"] == 6

    def test_an_unseen_domain_is_scored_and_not_trained_on(self, config):
        unseen = ["ggeur.unseen_domains", "['photo']"]
        run = finished(config(*CENTRALISED, *unseen))
        assert run.history.results().domains == ["art", "sketch", "photo"]
        assert run.history.rounds[-1].accuracy["photo"] is not None
        seen = load_federated_data(config(*unseen)).clients
        assert {held.domain for held in seen} == {"art", "sketch"}
        trained_on = len(run.data.clients[0].train)
        assert trained_on == sum(len(held.train) for held in seen)

    @pytest.mark.parametrize(
        ("steps", "notes"), [([], 0), ([1], 0), ([1, 2], 1)], ids=str
    )
    def test_the_description_reads_well(self, config, steps, notes):
        run = Run(config(*CENTRALISED, *SIX, "ggeur.steps", steps))
        _, first, *domains = run.describe()
        rows = len(run.data.clients[0].train)
        assert first == (
            f"all domains' rows in one place: 1 client, {rows} rows to train on"
        )
        assert domains[0].startswith("domain art: ")
        assert domains[0].endswith("rows to test")
        said = [line for line in domains if line.startswith("note: step 2 adds nothin")]
        assert len(said) == notes

    def test_the_first_step_has_an_effect_and_the_second_has_none(self, config):
        plain, first, both = (
            finished(config(*CENTRALISED, "ggeur.steps", steps, "ggeur.step1_size", 40))
            for steps in ([], [1], [1, 2])
        )
        assert figures(plain)["rounds"] != figures(first)["rounds"]
        heads = [
            load(run.history.head_bytes())["classifier.weight"] for run in (first, both)
        ]
        assert torch.equal(*heads)

    def test_data_that_are_given_are_put_in_one_place_too(self, config):
        cfg = config(*CENTRALISED, *SIX)
        dataset = load_data_set(cfg)
        divided = partition(
            dataset,
            client_num=6,
            splitter=cfg.data.splitter,
            splitter_args=cfg.data.splitter_args,
            seed=cfg.seed,
        )
        given = Run(cfg, divided)
        given.follow(lambda record: None)
        assert figures(given) == figures(finished(cfg))

    def test_a_run_that_was_stopped_goes_on(self, config, tmp_path):
        path = tmp_path / "checkpoint"
        first = Run(config(*CENTRALISED, "federate.save_to", path)).engine.run()
        assert [type(next(first)).__name__ for _ in range(2)] == [
            "Round0",
            "RoundRecord",
        ]
        restored = finished(config(*CENTRALISED, "federate.restore_from", path))
        assert figures(restored) == figures(finished(config(*CENTRALISED)))

    def test_unseen_clients_are_refused_by_name(self, config):
        with pytest.raises(
            ConfigError, match=r"  federate\.unseen_clients_rate: .*centralised"
        ):
            config(*CENTRALISED, *SIX, "federate.unseen_clients_rate", 0.5)


@pytest.fixture
def one_domain(config, embeddings_folder):
    """Runs with one domain, held by one client."""
    for name in ("photo", "sketch"):
        (embeddings_folder / f"{name}.npz").unlink()
    return lambda *settings: config("federate.client_num", 1, *settings)


@pytest.mark.parametrize("settings", [(), MLP], ids=["linear", "mlp"])
@pytest.mark.parametrize("steps", [[], [1]], ids=str)
def test_with_one_client_all_three_are_the_same(one_domain, steps, settings):
    settings = [*settings, "ggeur.steps", steps, "ggeur.noise", "fresh"]
    federated = finished(one_domain(*settings))
    local = finished(one_domain(*LOCAL, *settings))
    pooled = finished(one_domain(*CENTRALISED, *settings))
    weights = federated.engine.server.params
    assert torch.equal(kept_heads(local)[1], weights)
    assert torch.equal(pooled.engine.server.params, weights)
    for run in (local, pooled):
        for mine, theirs in zip(run.history.rounds, federated.history.rounds):
            assert (mine.accuracy, mine.loss) == (theirs.accuracy, theirs.loss)


@pytest.mark.slow
def test_the_bounds_lie_on_either_side(quickstart, caplog):
    """On the bundled digits under label skew: alone, together, in one place."""
    with caplog.at_level(logging.WARNING):
        alone, together, pooled = (
            finished(
                load_config(
                    quickstart,
                    [
                        *("ggeur.base_method", method, "federate.total_round_num", "5"),
                        *("ggeur.space", "raw", "train.optimizer.lr", "0.01"),
                        *("data.splitter", "lds"),
                        *("data.splitter_args", "[{'alpha': 0.1}]"),
                    ],
                )
            ).history.results()
            for method in ("local", "fedavg", "centralised")
        )
    assert alone.final.avg < together.final.avg < pooled.final.avg
    assert not caplog.records
