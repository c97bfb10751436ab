"""`ggeur.base_method: local` and `centralised`, on the embedded engine."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from by_bytes import Federation, make_client_data, make_rows, score_of
from by_numpy import (
    BATCH,
    DECAY,
    EPOCHS,
    MOMENTUM,
    RATE,
    SIZES,
    World,
    gradient,
    rows,
    sgd,
)
from federations import LOCAL, MODELS, TINY, federate, federate_tiny
from safetensors.torch import load

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import (
    ClientData,
    Embeddings,
    FederatedData,
    centralise,
    partition,
)
from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import (
    Run,
    load_data_set,
    load_federated_data,
    run,
)
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import Score, evaluate
from federatedscope_ggeur.methods import Centralised, FedAvg, Local, initial_weights
from federatedscope_ggeur.models import ModelSettings, build_model, num_parameters
from federatedscope_ggeur.reporting import Results, numbers, results_table
from federatedscope_ggeur.reporting.results import results_html

LOCAL_METHOD = ("ggeur.base_method", "local")
CENTRALISED = ("ggeur.base_method", "centralised")
SIX = ("federate.client_num", 6)


def finished(cfg, data=None) -> Run:
    one = Run(cfg, data)
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
        run = finished(config(*LOCAL_METHOD, *SIX))
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
        asked = finished(config(*LOCAL_METHOD, "federate.make_global_eval", True))
        plain = finished(config(*LOCAL_METHOD))
        assert figures(asked) == figures(plain)
        note = "federate.make_global_eval has no effect with ggeur.base_method: local"
        assert [note in line for line in asked.describe()].count(True) == 1
        assert not any(note in line for line in plain.describe())

    @pytest.mark.slow
    def test_a_round_s_bytes_do_not_depend_on_the_head(self, config):
        small, large = (
            finished(config(*LOCAL_METHOD, "ggeur.mlp_hidden_dim", n)) for n in (0, 300)
        )
        for one, other in zip(small.history.rounds, large.history.rounds):
            assert one.bytes_up == other.bytes_up > 0
            assert one.bytes_down == other.bytes_down > 0
        model = 4 * num_parameters(large.engine.server.model)
        assert large.history.rounds[-1].bytes_up < model / 10

    @pytest.mark.slow
    def test_weights_of_fs_cannot_be_a_start(self, config, tmp_path):
        path = tmp_path / "fs.pt"
        model = Run(config()).engine.server.model
        torch.save({"cur_round": 1, "model": model.state_dict()}, path)
        finished(config("federate.restore_from", path))
        with pytest.raises(ConfigError, match=r"restore_from: .*only weights.*local"):
            Run(config(*LOCAL_METHOD, "federate.restore_from", path))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("ggeur.unseen_domains", "['photo']"),
            ("federate.unseen_clients_rate", 0.5),
            ("ggeur.calibrate", "ccvr"),
            ("ggeur.closed_form", "ncm"),
            ("ggeur.augmentation", "fedmix"),
        ],
    )
    def test_what_needs_a_federation_is_refused_by_name(self, config, key, value):
        with pytest.raises(ConfigError, match=rf"  {key}: .*local"):
            config(*LOCAL_METHOD, *SIX, key, value)


class TestCentralised:
    def test_one_client_trains_on_every_row_and_each_domain_is_scored(self, config):
        settings = [*SIX, "ggeur.steps", []]
        divided = load_federated_data(config(*settings))
        run = finished(config(*CENTRALISED, *settings))
        (client,) = run.engine.clients.values()
        rows = torch.cat([held.train.features for held in divided.clients])
        assert torch.equal(client.features, rows)
        assert (client.number, client.domain) == (1, "all domains")
        assert all(record.clients == [1] for record in run.history.rounds)
        assert client.aggregation_weight == len(rows)
        results, server = run.history.results(), run.engine.server
        assert results.domains == ["art", "photo", "sketch"]
        for name, test in divided.test_sets().items():
            score = evaluate(server.model, server.params, test.features, test.labels)
            assert results.rounds[-1].accuracy[name] == score.accuracy

    def test_settings_of_many_clients_change_nothing(self, config):
        plain = finished(config(*CENTRALISED, *SIX))
        many = ["federate.make_global_eval", True, "ggeur.quorum", 5]
        many += ["federate.sample_client_num", 4, "ggeur.prototypes", "client"]
        many += ["federate.ignore_weight", True]
        assert figures(finished(config(*CENTRALISED, *SIX, *many))) == figures(plain)

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

    @pytest.mark.slow
    def test_the_second_step_adds_nothing_and_a_note_says_so(self, config):
        runs = [
            finished(config(*CENTRALISED, "ggeur.steps", steps, "ggeur.step1_size", 40))
            for steps in ([], [1], [1, 2])
        ]
        plain, first, both = (figures(run)["rounds"] for run in runs)
        assert plain != first == both
        heads = [load(run.history.head_bytes()) for run in runs[1:]]
        assert torch.equal(*(head["classifier.weight"] for head in heads))
        said = [any("step 2 adds nothing" in x for x in r.describe()) for r in runs]
        assert said == [False, False, True]
        rows = len(runs[0].data.clients[0].train)
        assert f"1 client, {rows} rows to train on" in runs[0].describe()[1]

    def test_data_that_are_given_are_put_in_one_place_too(self, config):
        cfg = config(*CENTRALISED, *SIX)
        divided = partition(
            load_data_set(cfg),
            client_num=6,
            splitter=cfg.data.splitter,
            splitter_args=cfg.data.splitter_args,
            seed=cfg.seed,
        )
        assert figures(finished(cfg, divided)) == figures(finished(cfg))

    def test_unseen_clients_are_refused_by_name(self, config):
        with pytest.raises(
            ConfigError, match=r"  federate\.unseen_clients_rate: .*centralised"
        ):
            config(*CENTRALISED, *SIX, "federate.unseen_clients_rate", 0.5)


# All data in one place: plain SGD on everybody's rows, by numpy.


ROUNDS = 2


def divided():
    """The tiny world's rows, a domain for each client."""
    clients = []
    for k in SIZES:
        x, y = rows(k)
        train = Embeddings(torch.tensor(x).float(), torch.tensor(y), f"domain {k}")
        clients.append(ClientData(k, train.domain, train, train.select([])))
    names = tuple(client.domain for client in clients)
    return FederatedData(tuple(clients), names, (), tuple("0123"), "numbers")


def plain_sgd(world):
    """Weights after each round of SGD on all rows, class by class as `fit` takes them,
    in a class in order of the clients."""
    x, y = (np.concatenate(part) for part in zip(*map(rows, SIZES)))
    by_class = np.argsort(y, kind="stable")
    x, y = x[by_class], y[by_class]
    w, after = world.start, []
    for _ in range(ROUNDS):
        velocity = np.zeros_like(w)
        for i in [*range(0, len(y), BATCH)] * EPOCHS:
            batch = x[i : i + BATCH], y[i : i + BATCH]
            g = gradient(lambda v: world.cross_entropy(v, *batch), w)  # noqa: B023
            velocity = MOMENTUM * velocity + g + DECAY * w
            w = w - RATE * velocity
        after.append(w)
    return np.stack(after)


@pytest.mark.parametrize("hidden", [0, 3])
def test_the_weights_are_those_of_plain_sgd(hidden):
    world = World(hidden=hidden)
    (pooled,) = centralise(divided()).clients
    train = pooled.train.features, pooled.train.labels
    federation = Federation(
        {pooled.number: (pooled.domain, *train)},
        Centralised(),
        training=TINY,
        model=ModelSettings(hidden),
    )
    federation.server.params = torch.tensor(world.start).float()
    found = federation.run(ROUNDS)[1:].double().numpy()
    np.testing.assert_allclose(found, plain_sgd(world), rtol=1e-6, atol=1e-6)


# What it takes to pool all rows (`centralised`): counted as sent, wherever bytes or
# privacy are spoken of.


SIX_CLIENTS = [
    "federate.client_num",
    6,
    "data.splits",
    [0.6, 0.2, 0.2],
    "ggeur.steps",
    [],
]
POOLED = [*SIX_CLIENTS, "ggeur.base_method", "centralised"]
NO_GUARANTEE = (
    "privacy: no guarantee; the rows of all clients are pooled in one place, which "
    "sees each of them"
)


@pytest.mark.slow
def test_rows_that_are_pooled_are_sent_and_every_page_says_so(config, tmp_path):
    pooled, apart = run(config(*POOLED)), run(config(*SIX_CLIENTS))
    assert apart.pooled is None
    assert "pooled" not in results_table(apart)
    rows = sum(client.train_rows + client.val_rows for client in apart.clients)
    found = pooled.pooled
    assert (found.clients, found.rows) == (len(apart.clients), rows)
    assert found.bytes_up == rows * (16 * 4 + 8)  # float32, and a label of int64
    assert pooled.final.bytes_up == found.bytes_up + pooled.round0.bytes_up + sum(
        record.bytes_up for record in pooled.rounds
    )
    assert Results.from_json(pooled.to_json()).pooled == found
    assert "the rows of all clients" in pooled.privacy.server_sees
    # The server scores, of domains that no client has test rows of.
    assert {client.test_rows for client in pooled.clients} == {0}
    line = (
        f"of the bytes up, {found.bytes_up / 1e6:.2f} MB are the {rows} rows of 6 "
        "clients, pooled in one place to train on"
    )
    assert results_table(pooled).splitlines()[-1] == NO_GUARANTEE
    for shown in (results_table(pooled), results_html(pooled)):
        assert "AVG" in shown
        assert "no test rows" not in shown
        assert line in shown
        assert NO_GUARANTEE in shown


def test_a_dry_run_says_both(config, tmp_path, capsys):
    cfg = config(*POOLED, "federate.make_global_eval", True, "outdir", tmp_path)
    assert forecast(set_up(cfg)).total.up == run(cfg).final.bytes_up
    path = tmp_path / "pooled.yaml"
    path.write_text(cfg.dump())
    assert main(["--cfg", str(path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert NO_GUARANTEE in said.splitlines()
    assert re.search(r"^rows of 6 clients, pooled +\S+ k?B +-$", said, re.M)


# No federation: numbers by numpy, and that no weights ever travel.


#: Client 4 is left out of round 2; client 3 holds nothing.
DRAWN = ((1, 2, 3, 4), (1, 2, 3), (1, 4))


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [0, 3])
def test_every_client_has_the_trajectory_of_numpy(hidden):
    world = World(DRAWN, hidden)
    federation = federate_tiny(Local(), world)
    # What a federation begins with, whatever its method.
    model = ModelSettings(hidden)
    start = Federation(make_client_data(), training=TINY, model=model).server.params
    for k in SIZES:
        w, moved = start.double().numpy(), 0
        for clients in DRAWN:
            if k in clients:
                w, steps = sgd(world.cross_entropy, w, k)
                moved += steps
        assert (moved > 0) is (SIZES[k] > 0)
        found = federation.clients[k].state["params"].double().numpy()
        np.testing.assert_allclose(found, w, rtol=1e-6, atol=5e-7)


def test_a_client_that_is_not_drawn_keeps_its_head():
    federation = Federation(make_client_data(), Local(), training=LOCAL).round0()
    federation.train(1)
    before = federation.clients[2].state["params"]
    federation.training.sample = lambda number: [1, 3]
    federation.train(2)
    assert torch.equal(federation.clients[2].state["params"], before)
    report = federation.score(2, federation.broadcast(2), TEST).scores["test"]
    assert report.loss_sum == score_at(federation, before).loss_sum


ROWS = make_rows(40, seed=99)
TEST = {"test": Embeddings(*ROWS, "a")}


def score_at(federation, params):
    return evaluate(federation.server.model, params, *ROWS)


def test_clients_score_their_own_heads():
    federation = federate(Local(), rounds=2)
    broadcast = federation.send(federation.broadcast(2))
    losses = set()
    for client in federation.clients.values():
        report = score_of(client, broadcast, TEST).scores["test"]
        wanted = score_at(federation, client.state["params"])
        assert (report.correct, report.loss_sum) == (wanted.correct, wanted.loss_sum)
        losses.add(report.loss_sum)
    assert len(losses) == 3


def test_a_client_that_was_never_drawn_scores_the_head_it_would_begin_with():
    federation = Federation(make_client_data(), Local()).round0()
    report = federation.score(1, federation.broadcast(1), TEST)
    report = report.scores["test"]
    start = initial_weights(build_model(6, 4, ModelSettings()), seed=0)
    assert report.loss_sum == score_at(federation, start).loss_sum


def test_a_score_of_an_earlier_round_is_of_the_head_of_then():
    """As after a restart that repeats a round."""
    federation = federate(Local(), rounds=2)
    client = federation.clients[1]
    report = score_of(client, federation.broadcast(1), TEST).scores["test"]
    then = score_at(federation, client.states[1]["params"])
    now = score_at(federation, client.states[2]["params"])
    assert report.loss_sum == then.loss_sum != now.loss_sum


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_no_weights_travel(model):
    federation = Federation(make_client_data(), Local(), model=model).round0()
    assert federation.send(federation.broadcast(1)).params.shape == (0,)
    updates = federation.train(1)
    assert [update.params.shape for update in updates] == [(0,)] * 3
    assert all(update.steps > 0 and not update.upload for update in updates)
    before = federation.server.params
    federation.step(1, updates)
    assert torch.equal(federation.server.params, before)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("steps", [(), (1,)], ids=str)
def test_alone_a_client_gets_what_any_federation_of_one_gets(model, steps):
    options = {"model": model, "steps": steps, "sizes": (30,)}
    alone = federate(Local(), **options).clients[1].state["params"]
    for method in (FedAvg(), Centralised()):
        assert torch.equal(federate(method, **options).weights[-1], alone)
