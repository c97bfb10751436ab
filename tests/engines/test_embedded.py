"""Whole runs on the embedded engine."""

from __future__ import annotations

import random

import numpy as np
import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run, load_federated_data, run
from federatedscope_ggeur.errors import ConfigError, DataError, GGEURError
from federatedscope_ggeur.federation import evaluate
from federatedscope_ggeur.reporting import numbers


def scores(results) -> dict:
    """What must not depend on how the run was carried out."""
    kept = numbers(results)
    return {key: kept[key] for key in ("rounds", "final", "round0", "clients")}


def test_the_quickstart_learns(quickstart):
    results = run(load_config(quickstart, ["federate.total_round_num", "8"]))
    assert results.domains == ["clean", "inverted", "blurred", "noisy"]
    assert results.final.avg > 0.7  # ten classes: chance is 0.1
    assert results.final.rounds == [4, 5, 6, 7, 8]


def test_the_same_seed_gives_the_same_numbers_to_the_bit(config):
    first, second = run(config()), run(config())
    assert numbers(first) == numbers(second)
    assert scores(run(config("seed", 1))) != scores(first)


def test_the_order_in_which_clients_run_changes_nothing(config):
    def shuffled(clients):
        return random.Random(5).sample(clients, len(clients))

    settings = ["federate.client_num", 9, "ggeur.mlp_hidden_dim", 8]
    for order in (lambda clients: sorted(clients, reverse=True), shuffled):
        expected = run(config(*settings))
        assert scores(run(config(*settings), order=order)) == scores(expected)


@pytest.mark.parametrize("hidden", [0, 8])
def test_kept_or_rebuilt_sets_change_nothing(config, hidden):
    kept = run(config("ggeur.mlp_hidden_dim", hidden))
    rebuilt = run(config("ggeur.mlp_hidden_dim", hidden, "ggeur.memory_limit", 0))
    assert scores(kept) == scores(rebuilt)


def test_the_window_changes_nothing(config):
    settings = [
        "federate.client_num",
        7,
        "data.splitter",
        "iid",
        "data.splitter_args",
        [],
    ]
    one = run(config(*settings, "ggeur.round0_window", 1))
    assert scores(one) == scores(run(config(*settings, "ggeur.round0_window", 100)))


def test_client_and_server_evaluation_agree(config):
    by_clients = run(config("federate.client_num", 6))
    by_server = run(config("federate.client_num", 6, "federate.make_global_eval", True))
    for mine, theirs in zip(by_clients.rounds, by_server.rounds):
        assert mine.accuracy == theirs.accuracy
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-6)  # float32 logits
    assert by_clients.final.bytes_down > by_server.final.bytes_down


def test_scores_are_those_of_the_final_head(config):
    following = Run(config("federate.make_global_eval", True))
    results = following.follow(lambda record: None)
    server = following.engine.server
    for name, test in following.data.test_sets().items():
        score = evaluate(server.model, server.params, test.features, test.labels)
        assert results.rounds[-1].accuracy[name] == score.accuracy


def test_an_unseen_domain_is_scored_and_held_by_nobody(config):
    results = run(config("ggeur.unseen_domains", "['photo']", "federate.client_num", 2))
    assert results.unseen_domains == ["photo"]
    assert results.domains == ["art", "sketch", "photo"]
    assert {client.domain for client in results.clients} == {"art", "sketch"}
    assert results.final.accuracy["photo"] is not None


def test_rounds_that_are_not_evaluated_have_no_scores(config):
    results = run(config("eval.freq", 2))
    assert [record.evaluated for record in results.rounds] == [False, True, True]


def test_sampled_clients_are_the_ones_that_train(config):
    results = run(config("federate.client_num", 6, "federate.sample_client_rate", 0.5))
    assert all(len(record.clients) == 3 for record in results.rounds)
    assert len({tuple(record.clients) for record in results.rounds}) > 1
    fewer = run(config("federate.client_num", 6, "federate.sample_client_num", 2))
    assert all(len(record.clients) == 2 for record in fewer.rounds)


def test_the_plain_baseline_asks_for_no_statistics(config):
    results = run(config("ggeur.steps", []))
    assert results.round0.statistics_bytes_up == {}
    assert results.round0.geometry_bytes_down == 0
    assert results.round0.uploaded_pairs == 0


def test_single_domain_steps_send_no_prototypes(config):
    assert run(config("ggeur.steps", [1])).round0.prototypes_bytes_down == 0
    assert run(config("ggeur.steps", [1, 2])).round0.prototypes_bytes_down > 0


def test_round_0_counts_pairs_on_both_sides_of_the_threshold(config):
    cfg = config("ggeur.privacy.min_samples", 6)
    data = load_federated_data(cfg)
    counts = [np.bincount(c.train.labels.numpy(), minlength=12) for c in data.clients]
    held = np.concatenate(counts)
    round0 = run(cfg).round0
    assert round0.uploaded_pairs == (held >= 6).sum()
    assert round0.withheld_pairs == ((held > 0) & (held < 6)).sum()


def test_everything_below_the_threshold_trains_on_originals(config):
    threshold = ["ggeur.privacy.min_samples", 10_000]
    plain = run(config("ggeur.steps", []))
    withheld = run(config(*threshold))
    assert withheld.round0.uploaded_pairs == 0
    assert [r.accuracy for r in withheld.rounds] == [r.accuracy for r in plain.rounds]


def test_one_client_alone(config):
    others = ["ggeur.unseen_domains", "['photo', 'sketch']"]
    results = run(config("federate.client_num", 1, *others))
    assert [client.number for client in results.clients] == [1]


def test_clients_without_data_take_part_without_a_say(config):
    settings = ["data.splitter", "lda", "data.splitter_args", "[{'alpha': 0.01}]"]
    results = run(config("federate.client_num", 30, *settings))
    assert any(client.train_rows == 0 for client in results.clients)
    assert results.final.avg is not None


@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.scale", "eigenvalue"],
        ["ggeur.noise", "fresh"],
        ["ggeur.prototypes", "client", "federate.client_num", 6],
        ["ggeur.weight", "original"],
        ["federate.ignore_weight", True],
        ["ggeur.mlp_hidden_dim", 8, "model.dropout", 0.2],
        ["train.batch_or_epoch", "batch", "train.local_update_steps", 5],
        ["grad.grad_clip", 1.0],
        ["dataloader.shuffle", False],
        ["dataloader.drop_last", True],
    ],
)  # fmt: skip
def test_every_setting_has_an_effect(config, settings):
    base = ["federate.client_num", 6] if "ggeur.prototypes" in settings else []
    assert scores(run(config(*settings))) != scores(run(config(*base)))


def test_adam_takes_its_own_settings(config, rewritten):
    with pytest.raises(ConfigError, match=r"train\.optimizer\.momentum"):
        config("train.optimizer.type", "Adam")
    path = rewritten(("momentum: 0.9", "type: Adam\n    betas: [0.9, 0.99]"))
    cfg = load_config(path, ["federate.total_round_num", "3"])
    assert cfg.train.optimizer.type == "Adam"
    assert run(cfg).final.avg > 0.7  # ten classes: chance is 0.1


def test_sizes_in_the_document_s_way(config):
    results = Run(
        config(
            "ggeur.step1_size", -1, "ggeur.step2_size", -1,
            "ggeur.num_generated_per_sample", 3,
            "ggeur.num_generated_per_prototype", 4,
            "ggeur.target_size_per_class", 30,
        )
    )  # fmt: skip
    results.follow(lambda record: None)
    for client in results.engine.clients.values():
        rows = client.recipe.labels.bincount()
        assert rows.max() <= 30


def test_divergence_is_an_error_that_says_what_to_do(config):
    with pytest.raises(GGEURError, match=r"round \d+.*train\.optimizer\.lr"):
        run(config("train.optimizer.lr", 1e9))


def test_a_set_beyond_all_memory_is_an_error_that_says_what_to_do(config):
    with pytest.raises(GGEURError, match=r"client \d.*ggeur\.step1_size"):
        run(config("ggeur.step1_size", 1_000_000_000, "ggeur.memory_limit", 1e15))


def test_nobody_with_a_full_batch_is_an_error(config):
    with pytest.raises(GGEURError, match="rows to train on"):
        run(config("dataloader.batch_size", 100_000, "dataloader.drop_last", True))


def test_more_domains_than_clients_is_refused_by_name(config):
    with pytest.raises(ConfigError, match=r"federate\.client_num"):
        run(config("federate.client_num", 2))


def test_an_unknown_data_type_is_refused_by_name(config):
    with pytest.raises(ConfigError, match=r"data\.type.*digits_quickstart"):
        run(config("data.type", "mnist@torchvision"))


def test_a_missing_folder_is_refused_by_name(config, tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        run(config("data.root", tmp_path / "nowhere"))


class TestUnseenClients:
    """Clients that `federate.unseen_clients_rate` leaves for evaluation alone."""

    SETTINGS = ("federate.client_num", 8, "federate.unseen_clients_rate", 0.5)

    def test_they_send_nothing_and_never_train(self, config):
        following = Run(config(*self.SETTINGS))
        results = following.follow(lambda record: None)
        unseen = set(following.engine.server.unseen)
        assert len(unseen) == 4
        seen = sorted(set(range(1, 9)) - unseen)
        assert list(results.round0.statistics_bytes_up) == [str(k) for k in seen]
        assert results.round0.clients == seen
        assert all(record.clients == seen for record in results.rounds)
        assert following.engine.server.uploaded_rows.keys() == set(seen)
        assert all(following.engine.clients[k].recipe is None for k in unseen)

    def test_they_are_scored_apart_and_count_in_no_average(self, config):
        following = Run(config(*self.SETTINGS, "eval.freq", 2))
        results = following.follow(lambda record: None)
        server, held = following.engine.server, following.data.clients
        first, *_, last = results.rounds
        assert first.unseen_clients is None  # not evaluated
        for numbers_of, found in (
            (server.participants, last.accuracy),
            (server.unseen, last.unseen_clients),
        ):
            tests = [client.test for client in held if client.number in numbers_of]
            assert set(found) == {test.domain for test in tests}
            for domain, accuracy in found.items():
                eval_params = [
                    evaluate(server.model, server.params, test.features, test.labels)
                    for test in tests
                    if test.domain == domain
                ]
                rows = sum(score.total for score in eval_params)
                assert accuracy == sum(score.correct for score in eval_params) / rows
        assert last.avg == pytest.approx(np.mean(list(last.accuracy.values())))
        assert last.accuracy != last.unseen_clients

    def test_without_them_the_field_is_empty(self, config):
        assert run(config()).rounds[-1].unseen_clients is None

    def test_they_are_drawn_by_seed(self, config):
        def unseen(seed):
            return Run(config(*self.SETTINGS, "seed", seed)).engine.server.unseen

        assert unseen(0) == unseen(0)
        assert len({tuple(unseen(seed)) for seed in range(5)}) > 1

    @pytest.mark.parametrize("rate", [0.01, 0.99])
    def test_at_least_one_is_unseen_and_one_is_not(self, config, rate):
        settings = ["federate.client_num", 3, "federate.unseen_clients_rate", rate]
        server = Run(config(*settings)).engine.server
        assert len(server.unseen) == (1 if rate < 0.5 else 2)

    def test_the_order_of_the_clients_changes_nothing(self, config):
        settings = [*self.SETTINGS, "federate.sample_client_num", 2]
        expected = run(config(*settings))
        assert expected.rounds[-1].unseen_clients
        backwards = run(
            config(*settings), order=lambda clients: sorted(clients, reverse=True)
        )
        assert numbers(backwards) == numbers(expected)
