"""Synthesis in Fisher's space: the plain oracle on the same noise, and the draws."""

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch
from solving import OTHERS, refuse, stats, weights_of

from federatedscope_ggeur.models.closed_forms.fisher import FisherSynthesis
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


@pytest.mark.parametrize(
    ("priors", "energy", "penalty"),
    [("counts", 0.995, None), ("none", 0.8, None), ("counts", 0.8, 0.1)],
)
def test_it_is_the_optimum_that_the_oracle_finds(data, priors, energy, penalty):
    rows, labels = data
    noise = noise_of(labels, rows.shape[1], 20)
    weighed = 1e-3 if penalty is None else penalty
    wanted = oracle.fisher(
        rows, labels, noise, 0.3, energy, 0.9, weighed, priors == "counts"
    )
    more = {} if penalty is None else {"penalty": penalty}
    form = FisherSynthesis(samples=20, energy=energy, priors=priors, **more)
    weight, bias = weights_of(form.solve(stats(rows, labels, 5)).model)
    kept = oracle.seen(labels)
    oracle.assert_close(weight[kept], oracle.centred(wanted[0]), 1e-5)
    oracle.assert_close(bias[kept], oracle.centred(wanted[1]), 1e-5)


@pytest.mark.parametrize("far", [{"spread": 1e6}, {"penalty": 1e15}])
def test_an_optimum_out_of_reach_is_refused_by_what_to_set(far):
    wanted = r"not reach its optimum; .*ggeur\.fisher\.spread.*ggeur\.fisher\.penalty"
    refuse(FisherSynthesis(**far), OTHERS, wanted)


@pytest.mark.slow
def test_draws_are_the_seeds_and_each_classs_own():
    form = FisherSynthesis(samples=5)
    first, again, other = (
        weights_of(form.solve(OTHERS, seed=seed).model)[0] for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()
