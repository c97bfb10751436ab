"""Heads in closed form, by whole runs: of round 0 alone, and as a start of training."""

import numpy as np
import pytest
import torch
from safetensors.torch import load

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import ClientData, Embeddings, FederatedData
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError, StatisticsError
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.reporting import numbers, results_table

DIM, CLASSES, ROWS = 24, 7, 900
KINDS = tuple(name for name, form in CLOSED_FORMS.items() if form.asks)
PARTITION_FREE = tuple(k for k in KINDS if CLOSED_FORMS[k].partition_free)


def rows(seed, count):
    """Rows around class means far from the origin, with stretched noise."""
    means = 3 * np.random.default_rng(0).normal(size=(CLASSES, DIM)) + 20
    rng = np.random.default_rng(seed)
    labels = np.resize(np.arange(CLASSES), count)
    noise = rng.normal(size=(count, DIM)) * np.geomspace(3, 0.1, DIM)
    features = torch.from_numpy((means[labels] + noise).astype("float32"))
    return features, torch.from_numpy(labels)


def federation(clients, beta):
    """The same rows, dealt to `clients` with each class's shares ~ Dirichlet(beta)."""
    features, labels = rows(1, ROWS)
    rng = np.random.default_rng(int(1000 * beta) + clients)
    owner = np.zeros(ROWS, dtype=int)
    for c in range(CLASSES):
        shares = rng.dirichlet(np.full(clients, beta))
        here = (labels == c).numpy()
        owner[here] = rng.choice(clients, size=here.sum(), p=shares)
    test = Embeddings(*rows(2, 350), "one")

    def held(k):
        here = torch.from_numpy(owner == k)
        mine = Embeddings(features[here], labels[here], "one")
        return ClientData(k + 1, "one", mine, test if k == 0 else test.select([]))

    names = tuple(f"class {c}" for c in range(CLASSES))
    return FederatedData(
        tuple(held(k) for k in range(clients)), ("one",), (), names, "made up"
    )


@pytest.fixture
def solve(quickstart):
    """The head, and the results, of a closed form over a federation."""

    def go(kind, clients=1, beta=0.5, *also):
        settings = ["ggeur.closed_form", kind, "ggeur.privacy.min_samples", 1]
        settings += ["federate.client_num", clients, *also]
        going = Run(
            load_config(quickstart, map_str(settings)), federation(clients, beta)
        )
        results = going.follow(lambda record: None)
        return load(going.history.head_bytes()), results

    return go


def map_str(settings):
    return [str(part) for part in settings]


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("clients", [1, 10, 100])
@pytest.mark.parametrize("kind", PARTITION_FREE)
def test_every_partition_gives_the_pooled_head(solve, kind, clients, beta):
    pooled, expected = solve(kind)
    model, results = solve(kind, clients, beta)
    for name, tensor in pooled.items():
        worst = (model[name] - tensor).abs().max() / tensor.abs().max()
        assert worst <= 1e-6
    assert results.final.accuracy == expected.final.accuracy
    assert results.final.avg > 0.8


@pytest.mark.parametrize("kind", ["lda", "ridge"])
def test_summed_statistics_give_the_same_head_for_fewer_bytes(solve, kind):
    whole, results = solve(kind, 10, 0.5)
    summed, cheaper = solve(kind, 10, 0.5, "ggeur.statistics", "summed")
    for name, tensor in whole.items():
        assert (summed[name] - tensor).abs().max() <= 1e-6 * tensor.abs().max()
    assert cheaper.round0.bytes_up < 0.7 * results.round0.bytes_up


@pytest.mark.parametrize("statistics", ["class", "summed", "means"])
def test_nearest_means_send_no_covariances(solve, statistics):
    head, results = solve("ncm", 10, 0.5, "ggeur.statistics", statistics)
    _, lda = solve("lda", 10, 0.5, "ggeur.statistics", "summed")
    assert results.round0.uploaded_pairs == lda.round0.uploaded_pairs
    numbers = results.round0.uploaded_pairs * (DIM + 2) * 8
    assert results.round0.bytes_up <= numbers + 10 * 500
    assert results.round0.bytes_up < lda.round0.bytes_up
    wanted, _ = solve("ncm", 10, 0.5)
    assert all(torch.equal(head[name], wanted[name]) for name in head)


EXACTLY = ["ggeur.compressed.dtype", "float32", "ggeur.compressed.rank", -1]
EXACTLY += ["ggeur.compressed.energy", 1.0, "ggeur.statistics", "compressed"]


@pytest.mark.parametrize("kind", ["ncm", "lda", "ridge"])
def test_compression_that_keeps_all_gives_the_same_head(solve, kind):
    whole, expected = solve(kind, 10, 0.5, "ggeur.statistics", "summed")
    head, results = solve(kind, 10, 0.5, *EXACTLY)
    for name, tensor in whole.items():
        assert (head[name] - tensor).abs().max() <= 1e-4 * tensor.abs().max()
    assert results.final.accuracy == expected.final.accuracy
    cost = results.round0.compression
    assert set(cost.clients) == {str(c.number) for c in results.clients}
    if kind != "ncm":
        assert cost.left_out == 0
        assert all(one.covariance_error < 1e-6 for one in cost.clients.values())


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize("kind", ["ncm", "lda"])
def test_what_compression_left_out_is_told(solve, kind, dtype):
    also = ["ggeur.lda.shrinkage", 0.5]
    keys = [*also, *EXACTLY, "ggeur.compressed.dtype", dtype]
    _, expected = solve(kind, 4, 0.5, *also, "ggeur.statistics", "summed")
    for rank in (-1, 12, 3):
        _, results = solve(kind, 4, 0.5, *keys, "ggeur.compressed.rank", rank)
        left_out = results.round0.compression.left_out
        assert results.round0.bytes_up < expected.round0.bytes_up
        if kind == "ncm":
            assert left_out is None
        else:
            assert (left_out > 0) == (rank > 0)


def test_whole_statistics_cost_nothing_to_tell(solve):
    assert solve("lda", 3)[1].round0.compression is None


def test_a_closed_form_alone_has_no_rounds(solve):
    _, results = solve("lda", 3)
    assert results.rounds == []
    assert results.final.rounds == []
    solved = results.round0.closed_form
    assert results.final.head == "closed_form"
    assert solved.method == "lda"
    assert results.final.accuracy == solved.accuracy
    assert results.round0.geometry_bytes_down == 0
    assert 0 < solved.details["shrinkage"] < 1
    assert "closed form lda" in results_table(results)


def test_shrinkage_and_priors_are_the_users(solve):
    rule, _ = solve("lda")
    fixed, results = solve("lda", 1, 0.5, "ggeur.lda.shrinkage", 0.3)
    assert results.round0.closed_form.details["shrinkage"] == 0.3
    assert not torch.equal(rule["classifier.weight"], fixed["classifier.weight"])


def test_the_threshold_withholds_classes_and_costs_accuracy_only(solve):
    every, _ = solve("lda", 100, 0.01)
    model, results = solve("lda", 100, 0.01, "ggeur.privacy.min_samples", 5)
    assert results.final.avg > 0.5
    assert any(not torch.equal(model[name], every[name]) for name in model)


@pytest.mark.parametrize("kind", ["ncm", "lda", "ridge"])
@pytest.mark.parametrize("steps", [[], [1, 2]])
def test_training_starts_at_the_closed_form(config, kind, steps):
    settings = ["ggeur.closed_form", kind, "ggeur.steps", steps]
    alone = Run(config(*settings))
    solved = alone.follow(lambda record: None)
    params = alone.engine.server.params
    starting = Run(config(*settings, "ggeur.init", "closed_form"))
    starts = []

    def watch(record):
        starts.append(starting.engine.server.params.clone())

    results = starting.follow(watch)
    assert torch.equal(starts[0], params)
    assert not torch.equal(starts[1], params)
    assert results.round0.closed_form.accuracy == solved.final.accuracy
    assert len(results.rounds) == 3
    assert results.final.head == "trained"
    assert "closed form" in results_table(results)
    assert "round 3" in results_table(results)


FIVE = ["federate.client_num", 5, "ggeur.privacy.min_samples", 1]


@pytest.mark.parametrize("kind", KINDS)
def test_clients_and_server_score_alike(config, kind):
    settings = ["ggeur.closed_form", kind, *FIVE]
    by_clients = run(config(*settings))
    by_server = run(config(*settings, "federate.make_global_eval", True))
    assert by_clients.final.accuracy == by_server.final.accuracy
    assert by_clients.final.bytes_down > by_server.final.bytes_down


def test_the_same_seed_gives_the_same_numbers(config):
    settings = ["ggeur.closed_form", "fisher", *FIVE]
    first = numbers(run(config(*settings)))
    assert first == numbers(run(config(*settings)))


def test_without_any_statistics_the_error_says_what_to_do(config):
    with pytest.raises(StatisticsError, match=r"lower ggeur\.privacy\.min_samples"):
        run(config("ggeur.closed_form", "lda", "ggeur.privacy.min_samples", 10000))


def test_a_stopped_run_that_began_in_closed_form_goes_on(config, tmp_path):
    settings = ["ggeur.closed_form", "lda", "ggeur.init", "closed_form"]
    whole = run(config(*settings))
    run(config(*settings, "federate.total_round_num", 1, "federate.save_to",
               tmp_path / "point"))  # fmt: skip
    resumed = run(config(*settings, "federate.restore_from", tmp_path / "point"))
    assert resumed.round0.closed_form.accuracy == whole.round0.closed_form.accuracy
    assert resumed.final.accuracy == whole.final.accuracy


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["ggeur.init", "closed_form"], r"ggeur\.init: must be random .* take .*lda"),
        (
            ["ggeur.closed_form", "mixture", "ggeur.init", "closed_form"],
            r"ggeur\.init: must be random with ggeur\.closed_form: mixture",
        ),
        (
            ["ggeur.closed_form", "lda", "ggeur.mlp_hidden_dim", 8],
            r"ggeur\.mlp_hidden_dim: must be 0",
        ),
        (["ggeur.statistics", "summed"], r"ggeur\.statistics: summed needs one of"),
        (
            ["ggeur.closed_form", "fisher", "ggeur.statistics", "summed"],
            r"ggeur\.statistics: must be class",
        ),
        (
            [
                "ggeur.closed_form", "lda", "ggeur.init", "closed_form",
                "ggeur.statistics", "summed",
            ],
            r"ggeur\.statistics: must be class with ggeur\.steps",
        ),
        (["ggeur.statistics", "means"], r"ggeur\.statistics: means needs one of"),
        (
            ["ggeur.statistics", "compressed"],
            r"compressed needs one of .*geometry: pooled",
        ),
        (
            ["ggeur.closed_form", "lda", "ggeur.statistics", "means"],
            r"ggeur\.statistics: must be class or summed or compressed with "
            r"ggeur\.closed_form: lda, which needs the scatter within classes",
        ),
        (
            ["ggeur.closed_form", "fisher", "ggeur.statistics", "compressed"],
            r"ggeur\.statistics: must be class with ggeur\.closed_form: fisher",
        ),
        (
            [
                "ggeur.closed_form", "ncm", "ggeur.init", "closed_form",
                "ggeur.statistics", "means", "ggeur.geometry", "pooled",
            ],
            r"must be class or summed or compressed with ggeur\.geometry: pooled",
        ),
        (
            [
                "ggeur.geometry", "pooled", "ggeur.statistics", "summed",
                "ggeur.calibrate", "ccvr",
            ],
            r"ggeur\.statistics: must be class with ggeur\.calibrate: ccvr",
        ),
        (["ggeur.geometry", "shared"], r"ggeur\.geometry: must be one of"),
        (["ggeur.compressed.dtype", "int4"], r"ggeur\.compressed\.dtype: must be"),
        (["ggeur.compressed.rank", 0], r"ggeur\.compressed\.rank: must be"),
        (["ggeur.compressed.energy", 0.0], r"ggeur\.compressed\.energy: must be"),
        (
            ["ggeur.closed_form", "lda", "ggeur.calibrate", "ccvr"],
            r"ggeur\.calibrate: must be none",
        ),
        (["ggeur.closed_form", "svm"], r"ggeur\.closed_form: must be one of"),
        (["ggeur.lda.shrinkage", 1.5], r"ggeur\.lda\.shrinkage: "),
        (["ggeur.ridge.alpha", 0.0], r"ggeur\.ridge\.alpha: "),
    ],
)  # fmt: skip
def test_contradictions_are_refused_by_name(config, settings, problem):
    with pytest.raises(ConfigError, match=problem):
        config(*settings)
