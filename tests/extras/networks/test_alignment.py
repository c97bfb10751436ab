"""The supervised contrastive loss against a double loop, and what it moves."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.extras.networks.methods.vhl import (
    alignment,
    supervised_contrastive,
)


def double_loop(z, labels, temperature):
    u = z / np.linalg.norm(z, axis=1, keepdims=True)
    n, total = len(z), 0.0
    for i in range(n):
        others = sum(np.exp(u[i] @ u[a] / temperature) for a in range(n) if a != i)
        positive = [j for j in range(n) if j != i and labels[j] == labels[i]]
        for j in positive:
            log_share = u[i] @ u[j] / temperature - np.log(others)
            total -= log_share / len(positive) / n
    return total


def rows(n, seed, dim=4, classes=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dim)), rng.integers(classes, size=n)


@given(st.integers(2, 9), st.integers(0, 10**6), st.sampled_from([0.07, 0.5, 2.0]))
@settings(max_examples=60, deadline=None)
def test_it_is_that_of_a_double_loop(n, seed, temperature):
    z, labels = rows(n, seed)
    found = supervised_contrastive(torch.tensor(z), torch.tensor(labels), temperature)
    wanted = double_loop(z, labels, temperature)
    np.testing.assert_allclose(found.item(), wanted, rtol=1e-9, atol=1e-12)


def test_rows_alone_in_their_class_add_nothing():
    z, _ = rows(5, seed=0)
    assert supervised_contrastive(torch.tensor(z), torch.arange(5), 0.07) == 0


def test_one_row_has_no_loss_and_a_gradient_of_zero():
    z = torch.ones(1, 3, requires_grad=True)
    loss = supervised_contrastive(z, torch.tensor([1]), 0.07)
    (gradient,) = torch.autograd.grad(loss, z)
    assert loss == 0
    assert not gradient.any()


def test_a_row_of_zeros_gives_finite_numbers():
    z, labels = map(torch.tensor, rows(6, seed=1))
    z[2] = 0
    z.requires_grad_(True)
    loss = supervised_contrastive(z, labels, 0.07)
    (gradient,) = torch.autograd.grad(loss, z)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def test_alignment_is_both_losses_of_which_the_second_counts_a_tenth():
    (z, y), (v, vy) = rows(5, seed=2), rows(7, seed=3)
    wanted = double_loop(np.vstack([z, v]), np.hstack([y, vy]), 0.07)
    wanted += 0.1 * double_loop(v, vy, 0.07)
    found = alignment(*map(torch.tensor, (z, y, v, vy)), 0.07)
    np.testing.assert_allclose(found.item(), wanted, rtol=1e-9)


def test_virtual_rows_move_by_their_own_loss_alone():
    (z, y), (v, vy) = (map(torch.tensor, rows(6, seed)) for seed in (4, 5))
    v.requires_grad_(True)
    (moved,) = torch.autograd.grad(alignment(z, y, v, vy, 0.07), v)
    own = 0.1 * supervised_contrastive(v, vy, 0.07)
    torch.testing.assert_close(moved, torch.autograd.grad(own, v)[0])
