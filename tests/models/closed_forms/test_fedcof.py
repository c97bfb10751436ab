"""FedCOF: the plain oracle, the scale of embeddings, what it takes of statistics."""

import closed_form_oracle as oracle
import left_out_oracle
import pytest
import torch
from closed_form_federations import components_of, make_federation
from solving import SHAPES, stats, weights_of

from federatedscope_ggeur.models.closed_forms.fedcof import FedCOF

CLASSES = 4


def solve(form, rows, labels, clients):
    parts = components_of(rows, labels, clients, CLASSES)
    return form.solve(stats(rows, labels, CLASSES), parts)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strength", [0.01, 1.0])
@pytest.mark.parametrize("num_clients", [1, 3, 8])
def test_equals_the_oracle(shape, strength, num_clients):
    rows, labels, clients = make_federation(SHAPES[shape], CLASSES, num_clients)
    solved = solve(FedCOF(strength=strength), rows, labels, clients)
    weights = left_out_oracle.fedcof_weights(rows, labels, clients, CLASSES, strength)
    kept = oracle.seen(labels)
    weight, bias = weights_of(solved.model)
    oracle.assert_close(weight[kept], oracle.centred(weights[kept]), 1e-5)
    assert not bias[kept].any()
    assert solved.report["strength"] == strength


def test_counts_and_means_are_all_it_takes():
    rows, labels, clients = make_federation(SHAPES["many rows"])
    assert FedCOF.NEEDS == "means"
    parts = components_of(rows, labels, clients, CLASSES)
    whole = stats(rows, labels, CLASSES).to("means")
    found = FedCOF().solve(whole, parts).model
    wanted = solve(FedCOF(), rows, labels, clients).model
    assert torch.equal(found.classifier.weight, wanted.classifier.weight)
