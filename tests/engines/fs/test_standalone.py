"""FederatedScope (FS) standalone gives the numbers of the embedded engine."""

from __future__ import annotations

import re

import pytest
from every_method import ON_HEADS, words
from foreign_text import FORGED, hidden_in
from standalone import assert_same, outcome, set_up

from federatedscope_ggeur.cfg_ggeur.fs_keys import switch_of
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.ledger import ledger_path, read_ledger
from federatedscope_ggeur.methods import METHODS

ALARM = re.compile(r"\b(?:WARNING|ERROR|CRITICAL)\b.*")
EIGHT = ["federate.client_num", 8]
SIX = ["federate.client_num", 6]


@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.steps", []],
        ["ggeur.steps", [1]],
        ["ggeur.steps", [1, 2]],
        ["ggeur.epoch_share", 0.3, "dataloader.batch_size", 8],
        ["ggeur.mlp_hidden_dim", 8, "model.dropout", 0.2],
        [*SIX, "federate.sample_client_num", 2],
        [*SIX, "federate.sample_client_rate", 0.5],
        [*SIX, "federate.sample_client_num", 1, "federate.sample_client_rate", 0.4],
        ["federate.ignore_weight", True],
        ["ggeur.weight", "original"],
        ["federate.make_global_eval", True],
        [
            "federate.make_global_eval", True,
            "ggeur.unseen_domains", "['photo']", "federate.client_num", 2,
        ],
        ["ggeur.unseen_domains", "['photo']", "federate.client_num", 2],
        [*SIX, "ggeur.prototypes", "client"],
        ["eval.freq", 2],
        [*EIGHT, "federate.unseen_clients_rate", 0.5],
        [
            *EIGHT, "federate.unseen_clients_rate", 0.5,
            "federate.sample_client_rate", 0.5, "federate.make_global_eval", True,
        ],
        ["ggeur.noise", "fresh", "ggeur.memory_limit", 0],
        [
            "federate.client_num", 30,
            "data.splitter", "lda", "data.splitter_args", "[{'alpha': 0.01}]",
        ],
        [*SIX, "ggeur.round0_window", 1],
        ["train.batch_or_epoch", "batch", "train.local_update_steps", 5],
        ["ggeur.privacy.min_samples", 10_000],
        ["seed", 7, "grad.grad_clip", 1.0, "dataloader.drop_last", True],
    ],
    ids=str,
)  # fmt: skip
def test_both_engines_give_the_same_numbers(fs, config, settings):
    assert_same(fs.run(*settings), Run(config(*settings)))


@pytest.mark.usefixtures("in_units")
@pytest.mark.parametrize("transform", ["none", "l2", "sqrt_l2"])
def test_units_and_transforms_are_the_same_on_both(fs, config, transform):
    settings = ["ggeur.space", "standard", "data.transform", [transform]]
    there = fs.run(*settings)
    assert_same(there, Run(config(*settings)))
    assert there.results.round0.space["scales"] == "each"
    assert there.results.encoder.endswith("sqrt_l2") == (transform == "sqrt_l2")


def test_a_domain_may_be_called_anything(fs, embeddings_folder):
    """FS's log has no line more for it, and FS's reader of scores reads it."""
    harmless = fs.run()
    name = f"=art\n{FORGED}\x1b[2J"
    (embeddings_folder / "art.npz").rename(embeddings_folder / f"{name}.npz")
    there = fs.run()
    # FS prints the config's path, which is another one.
    assert len(there.log.splitlines()) == len(harmless.log.splitlines())
    assert not hidden_in(there.log)
    assert not [line for line in there.log.splitlines() if line.startswith(FORGED)]
    assert name in there.results.domains
    said = {key for line in there.lines() for key in line.get("Results_raw", ())}
    assert rf"test_=art\n{FORGED}\x1b[2J_acc" in said


@pytest.mark.slow
@pytest.mark.parametrize("method", ON_HEADS)
def test_every_method_is_the_same_on_both(fs, config, method):
    settings = [*words(method), *SIX, "federate.sample_client_num", 3]
    there = fs.run(*settings)
    assert_same(there, Run(config(*settings)))
    switch = switch_of(METHODS[method])
    assert not switch or there.config[switch].use
    assert not ALARM.findall(there.log)


def test_the_quickstart_is_the_same_from_its_own_file(fs, quickstart):
    settings = ["federate.total_round_num", "4"]
    there = set_up(quickstart, settings).go()
    assert there.results.engine == "federatedscope standalone"
    assert_same(there, Run(load_config(quickstart, settings)))


def test_what_the_server_cannot_know_is_left_open(fs):
    results = fs.run().results
    assert results.round0.withheld_pairs is None
    assert all(c.train_rows is c.test_rows is None for c in results.clients)
    assert fs.run("ggeur.steps", []).results.round0.withheld_pairs == 0


def test_a_second_run_in_the_process_changes_nothing(fs):
    first, second = fs.run("federate.client_num", 6), fs.run("federate.client_num", 6)
    assert outcome(first.results) == outcome(second.results)
    assert first.folder != second.folder


class TestUnseenClients:
    SETTINGS = ("federate.client_num", 8, "federate.unseen_clients_rate", 0.5)

    def test_they_send_nothing_and_never_train(self, fs):
        there = fs.run(*self.SETTINGS)
        unseen = set(there.server.unseen_clients_id)
        seen = sorted(set(range(1, 9)) - unseen)
        results = there.results
        assert len(unseen) == 4
        assert list(results.round0.statistics_bytes_up) == [str(k) for k in seen]
        assert all(record.clients == seen for record in results.rounds)
        for number, client in there.runner.client.items():
            assert (client.trainer.client.recipe is None) == (number in unseen)

    def test_fs_reports_them_apart(self, fs):
        there = fs.run(*self.SETTINGS)
        *_, last = [x for x in there.lines() if "Results_avg_unseen" in x]
        unseen = there.server.unseen_clients_id
        assert last["Round"] == 3
        # FS means over clients here, the lines below are single clients' scores.
        single = {
            int(line["Role"].split("#")[1]): line["Results_raw"]
            for line in there.lines()
            if line["Role"].startswith("Client")
        }
        assert single.keys() == set(range(1, 9))
        for metric in ("test_acc", "test_total"):
            values = [single[number][metric] for number in unseen]
            mean = sum(values) / len(values)
            assert last["Results_avg_unseen"][metric] == pytest.approx(mean)
        final = there.lines()[-9]["Results_raw"]
        assert "unseen_client_best_individual" in final


SUMS = [
    "ggeur.privacy.secure_sums", "statistics",
    "ggeur.privacy.secure_sums_radius", 40,
    "ggeur.privacy.secure_sums_max_rows", 4096,
    "ggeur.privacy.secure_sums_fraction_bits", 38,
]  # fmt: skip
OTHERS = ["ggeur.geometry", "pooled", "ggeur.prototypes", "others"]


@pytest.mark.parametrize(
    "settings",
    [
        [*SUMS, *OTHERS],
        [*SUMS, "ggeur.closed_form", "lda"],
        [*SUMS, *OTHERS, "ggeur.closed_form", "ridge", "ggeur.init", "closed_form"],
        [*SUMS, *OTHERS, "ggeur.space", "standard", *SIX, "ggeur.round0_window", 2],
    ],
    ids=str,
)
def test_secure_sums_give_the_same_numbers(fs, config, settings):
    there = fs.run(*settings)
    assert_same(there, Run(config(*settings)))
    assert there.results.round0.sums.roster[:3] == [1, 2, 3]


NOISE = [
    "ggeur.closed_form", "lda",
    "ggeur.privacy.dp.epsilon", 4,
    "ggeur.privacy.dp.rows_per_class", 100,
    "ggeur.privacy.dp.test_seed", 1,
    "federate.make_global_eval", True,
]  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        [*NOISE, "ggeur.privacy.secure_sums", "statistics"],
        [*NOISE, "ggeur.privacy.dp.noise", "client"],
        [
            *NOISE,
            *("ggeur.privacy.dp.noise", "server", "ggeur.privacy.dp.project", 8),
            *("ggeur.text.prior", 4),
        ],
    ],
    ids=str,
)
def test_noise_by_a_test_seed_gives_the_same_numbers(fs, config, settings):
    there = fs.run(*settings)
    assert_same(there, Run(config(*settings)))
    assert there.results.round0.noise.clients == 3


@pytest.mark.parametrize("mode", ["standalone", "embedded"])
def test_each_client_is_charged_once_and_releases_once(fs, config, tmp_path, mode):
    folder = tmp_path / "ledger"
    settings = [*NOISE, "ggeur.privacy.dp.test_seed", -1]
    settings += ["ggeur.privacy.dp.noise", "client", "ggeur.privacy.dp.ledger", folder]

    def go():
        return fs.run(*settings) if mode == "standalone" else run(config(*settings))

    go()
    with pytest.raises(
        GGEURError, match=r"another release would exceed .*epsilon_total"
    ):
        go()
    for k in (1, 2, 3):
        spent, _ = read_ledger(ledger_path(str(folder), k))
        assert len(spent.entries) == 1


@pytest.mark.slow
def test_a_hundred_clients_make_a_secure_sum(fs, config):
    many = [*SUMS, "federate.client_num", 100, "ggeur.closed_form", "lda"]
    there = fs.run(*many)
    assert_same(there, Run(config(*many)))
    assert len(there.results.round0.sums.roster) == 100
