"""FedProto: numbers by numpy, what travels, and the threshold."""

import numpy as np
import pytest
import torch
from by_bytes import Federation, few_of_a_class, make_client_data
from by_numpy import means_of_rounds, rows, train_all
from federations import (
    FEW_WORLDS,
    SAMPLED,
    WORLDS,
    check,
    federate_tiny,
    refuse_upload,
)

from federatedscope_ggeur.methods import FedProto
from federatedscope_ggeur.methods.class_means import (
    class_means,
    class_means_problem,
    class_means_specs,
)
from federatedscope_ggeur.models import ModelSettings, build_model

STRENGTH = 2.0


def oracle(world):
    """Weights after each round: CE + lambda / (B D) sum_i |z_i - P_{y_i}|^2, with P_c
    the mean of the clients' class means weighted by count; 0 where there is no P_c."""
    known = {}

    def train(w, clients, number):
        def loss(v, x, y):
            z = world.represent(v, x)
            squares = [
                ((z[i] - known[c]) ** 2).sum() for i, c in enumerate(y) if c in known
            ]
            return world.cross_entropy(v, x, y) + STRENGTH * sum(squares) / z.size

        trained = train_all(world, w, clients, loss)
        of_class = {}
        for k in clients:
            x, y = rows(k)
            for c, z in zip(y, world.represent(trained[k], x)):
                of_class.setdefault(c, []).append(z)
        known.update({c: np.mean(zs, axis=0) for c, zs in of_class.items()})
        return trained

    return means_of_rounds(world, train)


@pytest.mark.parametrize("world", FEW_WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(FedProto(STRENGTH), oracle, world)


def test_a_class_that_nobody_has_stays_unknown():
    states = federate_tiny(FedProto(), WORLDS["linear, weighted"]).server.method_state
    assert states["known"].tolist() == [1, 1, 1, 0]
    assert not states["prototypes"][3].any()


def test_an_old_prototype_stays_while_nobody_who_is_drawn_has_the_class():
    assert not np.isin(0, rows(1)[1])  # client 1 holds no class 0
    world = WORLDS["linear, sampled"]
    federation = federate_tiny(FedProto(), world)
    before = federation.server.method_state["prototypes"].clone()
    federation.training.sample = lambda _: [1]
    number = len(SAMPLED) + 1
    federation.step(number, federation.train(number))
    after = federation.server.method_state["prototypes"]
    assert torch.equal(after[0], before[0])
    assert not torch.equal(after[1], before[1])


def test_a_class_below_the_threshold_sends_nothing():
    data = make_client_data((40, 40))
    few_of_a_class(data[1])
    options = {"steps": (1, 2), "min_samples": 5}
    federation = Federation(data, FedProto(), **options).round0()
    first, second = (update.upload for update in federation.train(1))
    assert first["counts"][2] == 0
    assert not first["means"][2].any()
    assert second["counts"][2] > 0


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("counts", -1, "'counts' must lie in 0"),
        ("counts", 2**40 + 1, "'counts' must lie in 0"),
        ("means", 2e15, r"'means' must lie within \+-1e\+15"),
        ("means", -2e15, r"'means' must lie within \+-1e\+15"),
    ],
)
def test_an_upload_that_cannot_be_is_refused(name, value, problem):
    federation = Federation(make_client_data(), FedProto()).round0()
    refuse_upload(federation, {name: value}, problem)


# Class means of the representation: of which rows, and what cannot be one.


MODEL = build_model(6, 4, ModelSettings(hidden=5, dropout=0.5))
ROWS = torch.randn(70, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(70) % 3


def test_they_are_of_all_rows_of_a_class_in_evaluation_mode():
    model, rows, labels = MODEL.train(), ROWS, LABELS
    found = class_means(model, rows, labels, torch.tensor([True, False, True, True]))
    specs = class_means_specs(model)
    assert {n: (t.shape, t.dtype) for n, t in found.items()} == {
        name: (torch.Size(spec.shape), spec.dtype) for name, spec in specs.items()
    }
    assert found["known"].tolist() == [1, 0, 1, 0]  # nobody has class 3
    model.eval()
    z = model.represent(model.prepare(rows))
    for c in (0, 2):
        torch.testing.assert_close(found["means"][c], z[labels == c].mean(dim=0))
    assert not found["means"][[1, 3]].any()
    assert class_means_problem(found) == ""


def test_without_rows_nothing_is_known():
    everything = torch.ones(4, dtype=torch.bool)
    found = class_means(MODEL, ROWS[:0], LABELS[:0], everything)
    assert not found["known"].any()
    assert not found["means"].any()
