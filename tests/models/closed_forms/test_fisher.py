"""Synthesis in Fisher's space: the plain oracle on the same noise, and the draws."""

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch
from solving import OTHERS, OTHERS_LABELS, OTHERS_ROWS, stats, weights_of

from federatedscope_ggeur.models.closed_forms.fisher import FisherSynthesis
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.rng import torch_generator


def noise_of(labels, dim, samples, seed=0):
    return np.array(
        [
            torch.randn(
                samples,
                dim,
                dtype=torch.float64,
                generator=torch_generator(seed, "fisher", c),
            ).numpy()
            for c in oracle.seen(labels)
        ]
    )


@pytest.mark.parametrize("priors", ["counts", "none"])
@pytest.mark.parametrize("energy", [0.8, 0.995])
def test_equals_the_oracle(data, priors, energy):
    rows, labels = data
    noise = noise_of(labels, rows.shape[1], 20)
    wanted = oracle.fisher(
        rows, labels, noise, 0.3, energy, 0.9, 30, priors == "counts"
    )
    form = FisherSynthesis(samples=20, steps=30, energy=energy, priors=priors)
    statistics = stats(rows, labels, 5)
    weight, bias = weights_of(form.solve(statistics).model)
    kept = oracle.seen(labels)
    oracle.assert_close(weight[kept], oracle.centred(wanted[0]), 1e-5)
    oracle.assert_close(bias[kept], oracle.centred(wanted[1]), 1e-5)


def test_without_steps_it_is_lda_where_nothing_is_left_out():
    form = FisherSynthesis(energy=1.0, steps=0, shrinkage=0.2)
    wanted = LinearDiscriminant(shrinkage=0.2).solve(OTHERS).model
    found = weights_of(form.solve(OTHERS).model)
    for mine, theirs in zip(found, weights_of(wanted)):
        oracle.assert_close(mine, theirs)


def test_draws_are_the_seeds_and_each_classs_own():
    form = FisherSynthesis(steps=5)
    first, again, other = (
        weights_of(form.solve(OTHERS, seed=seed).model)[0] for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_it_learns():
    form = FisherSynthesis()
    model = form.solve(OTHERS).model
    points = torch.from_numpy(OTHERS_ROWS).float()
    right = (model(points).argmax(dim=1).numpy() == OTHERS_LABELS).mean()
    means = LinearDiscriminant(shrinkage=1.0).solve(OTHERS).model
    assert right >= (means(points).argmax(dim=1).numpy() == OTHERS_LABELS).mean()
    assert form.solve(OTHERS).report["dimensions"] <= 3
