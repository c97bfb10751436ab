"""The mixture discriminant: the plain oracle, LDA where there is one place."""

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch
from closed_form_federations import components_of, make_federation
from left_out_oracle import mixture, places
from solving import SHAPES, stats

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.mixture import (
    MixtureDiscriminant,
    log_shares,
)
from federatedscope_ggeur.models.closed_forms.rda import RegularizedDiscriminant

CLASSES = 4


def solve(form, rows, labels, clients, num_classes=CLASSES):
    parts = components_of(rows, labels, clients, num_classes)
    return form.solve(stats(rows, labels, num_classes), parts)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("components", ["domain", "client"])
@pytest.mark.parametrize(("g", "priors"), [(0.05, "counts"), (0.3, "none")])
def test_equals_the_oracle(shape, components, g, priors):
    rows, labels, clients = make_federation(SHAPES[shape])
    form = MixtureDiscriminant(components=components, shrinkage=g, priors=priors)
    solved = solve(form, rows, labels, clients)
    where = places(clients, clients % 2, components)
    # What is scored is what float32 holds, which far from the origin is coarse.
    points = torch.from_numpy(rows[:20] + 0.1).float()
    wanted = np.array(
        [
            mixture(rows, labels, where, x, CLASSES, g, priors == "counts")
            for x in points.double().numpy()
        ]
    )
    found, kept = solved.model(points).double().numpy(), oracle.seen(labels)
    coarse = 1e-5 if abs(rows).max() < 100 else 2e-3
    oracle.assert_close(
        oracle.centred(found[:, kept].T), oracle.centred(wanted[:, kept].T), coarse
    )
    assert solved.report["components"] == components
    assert solved.report["component_count"] == len(
        {(c, k) for c, k in zip(labels.tolist(), where.tolist())}
    )


@pytest.mark.parametrize("priors", ["counts", "none"])
def test_of_one_place_it_is_lda(priors):
    rows, labels, _ = make_federation(SHAPES["classes nowhere"], 5)
    statistics, points = stats(rows, labels, 5), torch.from_numpy(rows).float()
    lda = LinearDiscriminant(shrinkage=0.3, priors=priors).solve(statistics).model
    form = MixtureDiscriminant(shrinkage=0.3, priors=priors)
    found = form.solve(statistics).model(points)
    oracle.assert_close(
        oracle.centred(found[:, oracle.seen(labels)].numpy().T),
        oracle.centred(lda(points)[:, oracle.seen(labels)].numpy().T),
        1e-5,
    )


def test_it_tells_classes_apart_that_domains_shift_onto_each_other():
    """Class 0 of one domain stands where class 1 of the other does."""
    rng = np.random.default_rng(0)
    labels, clients = np.repeat([0, 1, 0, 1], 50), np.repeat([1, 2], 100)
    means = np.array([[0.0, 0], [4, 0], [4, 8], [0, 8]]).repeat(50, axis=0)
    rows = means + rng.normal(size=(200, 2))
    points = torch.from_numpy(rows).float()
    right = [
        (solve(form, rows, labels, clients, 2).model(points).argmax(dim=1).numpy())
        == labels
        for form in (MixtureDiscriminant(), LinearDiscriminant())
    ]
    assert right[0].mean() > 0.95
    assert right[1].mean() < 0.8


def test_shares_of_components():
    weights, labels = torch.tensor([2.0, 6, 2]).double(), torch.tensor([0, 0, 1])
    found = log_shares(weights, labels, 2, "counts").exp()
    assert torch.allclose(found, torch.tensor([0.2, 0.6, 0.2]).double())
    found = log_shares(weights, labels, 2, "none").exp()
    assert torch.allclose(found, torch.tensor([0.25, 0.75, 1]).double())


@pytest.mark.parametrize("form", [MixtureDiscriminant, RegularizedDiscriminant])
def test_an_error_names_the_shrinkage_of_its_own_form(form):
    rows, labels, clients = make_federation(SHAPES["more dimensions than rows"])
    singular = form(components="client", shrinkage=0.0)
    with pytest.raises(StatisticsError, match=rf"raise ggeur\.{form.name}\.shrinkage"):
        solve(singular, rows, labels, clients)
