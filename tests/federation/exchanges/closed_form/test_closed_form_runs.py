"""Heads in closed form, by whole runs of round 0 alone."""

import numpy as np
import pytest
import torch
from safetensors.torch import load

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import ClientData, Embeddings, FederatedData
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.reporting import results_table

DIM, CLASSES, ROWS = 24, 7, 900
PARTITION_FREE = tuple(
    name for name, form in CLOSED_FORMS.items() if form.asks and form.partition_free
)
SUMMED = ["ggeur.statistics", "summed"]


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
        # The temperature hangs on how losses are rounded at each client.
        settings += ["ggeur.temperature", "none"]
        settings += ["federate.client_num", clients, *also]
        cfg = load_config(quickstart, list(map(str, settings)))
        going = Run(cfg, federation(clients, beta))
        results = going.follow(lambda record: None)
        return load(going.history.head_bytes()), results

    return go


def assert_near(head, wanted, share):
    for name, tensor in wanted.items():
        assert (head[name] - tensor).abs().max() <= share * tensor.abs().max()


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARTITION_FREE)
def test_every_partition_gives_the_pooled_head(solve, kind):
    pooled, expected = solve(kind)
    for clients, beta, *also in ((10, 0.01), (20, 0.5), (10, 0.01, *SUMMED)):
        if also and CLOSED_FORMS[kind].NEEDS == "class":
            continue
        model, results = solve(kind, clients, beta, *also)
        assert_near(model, pooled, 1e-6)
        assert results.final.accuracy == expected.final.accuracy
        assert results.final.avg > 0.8
        assert results.round0.compression is None


@pytest.mark.slow
@pytest.mark.parametrize("statistics", ["class", "summed", "means"])
def test_nearest_means_send_no_covariances(solve, statistics):
    head, results = solve("ncm", 10, 0.5, "ggeur.statistics", statistics)
    _, lda = solve("lda", 10, 0.5, *SUMMED)
    _, whole = solve("lda", 10, 0.5)
    assert results.round0.uploaded_pairs == lda.round0.uploaded_pairs
    numbers = results.round0.uploaded_pairs * (DIM + 2) * 8
    assert results.round0.bytes_up <= numbers + 10 * 500
    assert results.round0.bytes_up < lda.round0.bytes_up < 0.7 * whole.round0.bytes_up
    assert_near(head, solve("ncm", 10, 0.5)[0], 0)


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
