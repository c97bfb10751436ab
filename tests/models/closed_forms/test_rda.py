"""Regularized discriminant analysis: the plain oracle, and its vector of parameters."""

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch
from closed_form_federations import components_of, make_federation
from left_out_oracle import places, rda
from solving import SHAPES, refuse, stats

from federatedscope_ggeur.models import MixtureHead, load_vector, to_vector
from federatedscope_ggeur.models.closed_forms.rda import RegularizedDiscriminant

CLASSES = 4


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("components", "g", "priors"),
    [("class", 0.05, "counts"), ("domain", 0.3, "none"), ("client", 0.9, "counts")],
)
def test_equals_the_oracle(shape, components, g, priors):
    rows, labels, clients = make_federation(SHAPES[shape])
    form = RegularizedDiscriminant(
        components=components, common=9, shrinkage=g, priors=priors
    )
    parts = components_of(rows, labels, clients, CLASSES)
    model = form.solve(stats(rows, labels, CLASSES), parts).model
    # What is scored is what float32 holds, which far from the origin is coarse.
    points = torch.from_numpy(rows[:20] + 0.1).float()
    where = places(clients, clients % 2, components)
    wanted = np.array(
        [
            rda(rows, labels, where, x, CLASSES, g, priors == "counts")
            for x in points.double().numpy()
        ]
    )
    logits, kept = model(points), oracle.seen(labels)
    coarse = 1e-4 if abs(rows).max() < 100 else 5e-4
    oracle.assert_close(
        oracle.centred(logits[:, kept].double().numpy().T),
        oracle.centred(wanted[:, kept].T),
        coarse,
    )
    assert set(logits.argmax(dim=1).tolist()) <= set(kept)
    load_vector(other := MixtureHead(rows.shape[1], CLASSES), to_vector(model))
    assert torch.equal(other(points), logits)


def test_a_singular_covariance_is_an_error():
    rows, labels, _ = make_federation(SHAPES["more dimensions than rows"])
    form = RegularizedDiscriminant(shrinkage=0.0)
    refuse(form, stats(rows, labels, CLASSES), r"class 0 is singular.*rda\.shrinkage")
