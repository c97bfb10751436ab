"""Whole runs on the embedded engine; that nothing but a seed matters is said by
test_same_bits.py."""

import numpy as np
import pytest

from federatedscope_ggeur.engines.run import Run, load_federated_data, run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation import evaluate
from federatedscope_ggeur.reporting import numbers

SIX = ["federate.client_num", 6]


def scores(results) -> dict:
    """What must not depend on how the run was carried out."""
    kept = numbers(results)
    return {key: kept[key] for key in ("rounds", "final", "round0", "clients")}


def test_client_and_server_evaluation_agree_on_the_final_head(config):
    by_clients = run(config(*SIX))
    following = Run(config(*SIX, "federate.make_global_eval", True))
    by_server = following.follow(lambda record: None)
    for mine, theirs in zip(by_clients.rounds, by_server.rounds):
        assert mine.accuracy == theirs.accuracy
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-6)  # float32 logits
    assert by_clients.final.bytes_down > by_server.final.bytes_down
    server = following.engine.server
    for name, test in following.data.test_sets().items():
        score = evaluate(server.model, server.params, test.features, test.labels)
        assert by_server.rounds[-1].accuracy[name] == score.accuracy


def test_rounds_that_are_not_evaluated_have_no_scores(config):
    results = run(config("eval.freq", 2))
    assert [record.evaluated for record in results.rounds] == [False, True, True]


@pytest.mark.parametrize(("key", "value", "drawn"), [("rate", 0.5, 3), ("num", 2, 2)])
def test_sampled_clients_are_the_ones_that_train(config, key, value, drawn):
    results = run(config(*SIX, f"federate.sample_client_{key}", value))
    assert all(len(record.clients) == drawn for record in results.rounds)
    assert len({tuple(record.clients) for record in results.rounds}) > 1


def test_round_0_counts_pairs_on_both_sides_of_the_threshold(config):
    cfg = config("ggeur.privacy.min_samples", 6, "ggeur.steps", [1])
    data = load_federated_data(cfg)
    counts = [np.bincount(c.train.labels.numpy(), minlength=12) for c in data.clients]
    held = np.concatenate(counts)
    round0 = run(cfg).round0
    assert round0.uploaded_pairs == (held >= 6).sum()
    assert round0.withheld_pairs == ((held > 0) & (held < 6)).sum()
    assert round0.prototypes_bytes_down == 0  # of step 2 alone


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.scale", "eigenvalue"],
        ["ggeur.noise", "fresh"],
        ["ggeur.prototypes", "client"],
        ["ggeur.weight", "original"],
        ["federate.ignore_weight", True],
        ["ggeur.mlp_hidden_dim", 8, "model.dropout", 0.2],
        ["train.batch_or_epoch", "batch", "train.local_update_steps", 5],
        ["grad.grad_clip", 1.0],
        ["dataloader.shuffle", False],
        ["dataloader.drop_last", True],
    ],
    ids=lambda settings: settings[0],
)
def test_every_setting_has_an_effect(config, settings):
    assert scores(run(config(*SIX, *settings))) != scores(run(config(*SIX)))


def test_a_set_that_no_memory_holds_says_what_to_do(config):
    large = ["ggeur.step1_size", 1_000_000_000, "ggeur.memory_limit", 1e15]
    with pytest.raises(GGEURError, match=r"client \d.*ggeur\.step1_size"):
        run(config(*large))


class TestUnseenClients:
    """Clients that `federate.unseen_clients_rate` leaves for evaluation alone."""

    SETTINGS = ("federate.client_num", 8, "federate.unseen_clients_rate", 0.5)

    def test_they_send_nothing_never_train_and_are_scored_apart(self, config):
        following = Run(config(*self.SETTINGS, "eval.freq", 2))
        results = following.follow(lambda record: None)
        server, held = following.engine.server, following.data.clients
        unseen = set(server.unseen)
        assert len(unseen) == 4
        seen = sorted(set(range(1, 9)) - unseen)
        assert list(results.round0.statistics_bytes_up) == [str(k) for k in seen]
        assert results.round0.clients == seen
        assert all(record.clients == seen for record in results.rounds)
        assert server.merged.rows.keys() == set(seen)
        assert all(following.engine.clients[k].recipe is None for k in unseen)
        first, *_, last = results.rounds
        assert first.unseen_clients is None  # not evaluated
        for numbers_of, found in (
            (server.participants, last.accuracy),
            (server.unseen, last.unseen_clients),
        ):
            tests = [client.test for client in held if client.number in numbers_of]
            assert set(found) == {test.domain for test in tests}
            for domain, accuracy in found.items():
                parts = [
                    evaluate(server.model, server.params, test.features, test.labels)
                    for test in tests
                    if test.domain == domain
                ]
                rows = sum(score.total for score in parts)
                assert accuracy == sum(score.correct for score in parts) / rows
        assert last.avg == pytest.approx(np.mean(list(last.accuracy.values())))
        assert last.accuracy != last.unseen_clients

    @pytest.mark.slow
    def test_they_are_drawn_by_seed(self, config):
        def unseen(seed):
            return Run(config(*self.SETTINGS, "seed", seed)).engine.server.unseen

        assert unseen(0) == unseen(0)
        assert len({tuple(unseen(seed)) for seed in range(5)}) > 1

    @pytest.mark.parametrize(("rate", "unseen"), [(0.01, 1), (0.99, 2)])
    def test_at_least_one_is_unseen_and_one_is_not(self, config, rate, unseen):
        server = Run(config("federate.unseen_clients_rate", rate)).engine.server
        assert len(server.unseen) == unseen
