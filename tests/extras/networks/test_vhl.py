"""VHL with noise images, of which nothing travels; and sets of virtual images."""

from collections import Counter

import numpy as np
import pytest
import torch
from digits_network import digits_words
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from image_federations import begun, federate_images, seeded

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.extras.networks.methods import vhl
from federatedscope_ggeur.extras.networks.methods.feature_statistics import (
    SMOOTHING,
    soft_histogram,
    symmetric_divergence,
)
from federatedscope_ggeur.methods import FedAvg, build_method
from federatedscope_ggeur.reporting import Results

SMALL = {"images_per_class": 6, "batch_size": 8}


def test_the_set_is_of_the_run_s_seed_alone():
    one, again, other = (vhl.noise_set(8, (1, 8, 8), seed) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert one.shape == (8, 64)


def test_nothing_travels():
    federation = begun(build_method("fedavg", "vhl", SMALL))
    assert not federation.broadcast(1).download
    assert not any(update.upload for update in federation.train(1))


def test_only_the_first_passes_are_aligned():
    # Of two passes over the rows; without the cross-entropy there is nothing else.
    def after(method):
        return federate_images(method, rounds=1).weights[1]

    runs = [after(vhl.VHL(**SMALL, align_epochs=n, virtual=0.0)) for n in range(4)]
    torch.testing.assert_close(runs[0], after(FedAvg()))
    assert not torch.allclose(runs[1], runs[0], atol=1e-4)
    assert not torch.allclose(runs[2], runs[1], atol=1e-4)
    assert torch.equal(runs[3], runs[2])


# The supervised contrastive loss against a double loop, and what it moves.


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
@examples(60)
def test_it_is_that_of_a_double_loop(n, seed, temperature):
    z, labels = rows(n, seed)
    found = vhl.supervised_contrastive(
        torch.tensor(z), torch.tensor(labels), temperature
    )
    wanted = double_loop(z, labels, temperature)
    np.testing.assert_allclose(found.item(), wanted, rtol=1e-9, atol=1e-12)


def test_one_row_has_no_loss_and_a_gradient_of_zero():
    z = torch.ones(1, 3, requires_grad=True)
    loss = vhl.supervised_contrastive(z, torch.tensor([1]), 0.07)
    (gradient,) = torch.autograd.grad(loss, z)
    assert loss == 0
    assert not gradient.any()


def test_a_row_of_zeros_gives_finite_numbers():
    z, labels = map(torch.tensor, rows(6, seed=1))
    z[2] = 0
    z.requires_grad_(True)
    loss = vhl.supervised_contrastive(z, labels, 0.07)
    (gradient,) = torch.autograd.grad(loss, z)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def test_alignment_is_both_losses_of_which_the_second_counts_a_tenth():
    (z, y), (v, vy) = rows(5, seed=2), rows(7, seed=3)
    wanted = double_loop(np.vstack([z, v]), np.hstack([y, vy]), 0.07)
    wanted += 0.1 * double_loop(v, vy, 0.07)
    found = vhl.alignment(*map(torch.tensor, (z, y, v, vy)), 0.07)
    np.testing.assert_allclose(found.item(), wanted, rtol=1e-9)


def test_virtual_rows_move_by_their_own_loss_alone():
    (z, y), (v, vy) = (map(torch.tensor, rows(6, seed)) for seed in (4, 5))
    v.requires_grad_(True)
    (moved,) = torch.autograd.grad(vhl.alignment(z, y, v, vy, 0.07), v)
    own = 0.1 * vhl.supervised_contrastive(v, vy, 0.07)
    torch.testing.assert_close(moved, torch.autograd.grad(own, v)[0])


# Soft bins and the divergence between them: golden values, numpy, gradients.


def column(values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def histogram_by_loops(values, bins, temperature):
    """Eqs. 11 and 12 for a value after the other."""
    low, high = min(values), max(values)
    rho = [i / (bins - 2) for i in range(bins - 1)]
    total = np.zeros(bins)
    for value in values:
        z = (value - low) / (high - low) if high > low else 0.0
        logits = [((i + 1) * z - sum(rho[:i])) / temperature for i in range(bins)]
        shifted = np.exp(np.array(logits) - max(logits))
        total += shifted / shifted.sum()
    return total / len(values)


class TestHistogram:
    @pytest.mark.parametrize("temperature", [0.01, 0.3])
    @pytest.mark.parametrize("bins", [3, 8, 24])
    def test_columns_are_those_of_loops(self, bins, temperature):
        values = np.random.default_rng(bins).normal(size=(30, 4))
        found = soft_histogram(torch.tensor(values), bins, temperature)
        for c in range(4):
            wanted = histogram_by_loops(values[:, c].tolist(), bins, temperature)
            np.testing.assert_allclose(found[c].numpy(), wanted, atol=1e-12)

    @given(
        st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20),
        st.integers(3, 30),
    )
    def test_rows_sum_to_one_and_shift_and_scale_do_not_matter(self, values, bins):
        found = soft_histogram(column(values), bins, 0.05)
        assert found.sum().item() == pytest.approx(1, abs=1e-9)
        assert ((found >= 0) & (found <= 1)).all()
        moved = soft_histogram(column(values) * 4 + 8, bins, 0.05)
        if max(values) - min(values) > 1e-3:
            torch.testing.assert_close(moved, found, rtol=1e-5, atol=1e-5)

    def test_a_constant_column_is_finite_and_has_a_finite_gradient(self):
        values = torch.full((5, 2), 3.0, requires_grad=True)
        found = soft_histogram(values, 8, 0.01)
        (gradient,) = torch.autograd.grad(found[:, 0].sum(), values)
        assert torch.isfinite(found).all()
        assert torch.isfinite(gradient).all()

    def test_no_gradient_runs_through_the_range(self):
        """With the ends held fixed a small shift of all values changes the histogram;
        were the range to move along, it would not."""
        values = torch.rand(20, 1, dtype=torch.float64, requires_grad=True)
        first = soft_histogram(values, 5, 0.2)[0, 0]
        (gradient,) = torch.autograd.grad(first, values)
        assert gradient.sum().abs() > 1e-3


class TestDivergence:
    def histograms(self, seed, grad=False):
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.rand(4, 6, generator=generator, dtype=torch.float64)
        return (drawn / drawn.sum(dim=1, keepdim=True)).requires_grad_(grad)

    def test_it_is_that_of_loops(self):
        p, q = self.histograms(0), self.histograms(1)
        found = symmetric_divergence(p, q)
        for c in range(4):
            a, b = ((pi[c].numpy() + SMOOTHING) / (1 + SMOOTHING * 6) for pi in (p, q))
            wanted = (sum(a * np.log(a / b)) + sum(b * np.log(b / a))) / 2
            assert found[c].item() == pytest.approx(wanted, rel=1e-10)

    def test_of_equal_histograms_it_and_its_gradient_are_zero(self):
        p = self.histograms(0, grad=True)
        found = symmetric_divergence(p, p.detach().clone())
        (gradient,) = torch.autograd.grad(found.sum(), p)
        assert not found.any()
        assert not gradient.any()


# Sets of virtual images: their labels, bytes and order; noise of two kinds.


@given(st.integers(0, 10**6))
@examples(30)
def test_a_number_comes_back_from_its_pixel_to_half_a_step(seed):
    images = 2 * torch.rand(4, 9, generator=seeded(seed)) - 1
    pixels = vhl.to_pixels(images)
    assert pixels.dtype == torch.uint8
    back = pixels.double() / 127.5 - 1
    assert (back - images.double()).abs().max() <= 1 / 255 + 1e-6


def test_the_ends_are_the_ends():
    ends = torch.tensor([-1.0, 0.0, 1.0, -9.0, 9.0])
    assert vhl.to_pixels(ends).tolist() == [0, 128, 255, 0, 255]


def test_every_pass_takes_each_row_once_in_an_order_of_its_own():
    images = torch.arange(10, dtype=torch.uint8)[:, None]
    batches = vhl.virtual_batches(images, 5, 4, seeded())
    drawn = [next(batches) for _ in range(10)]
    assert all(x.shape == (4, 1) and x.dtype == torch.uint8 for x, _ in drawn)
    rows = torch.cat([x.flatten() for x, _ in drawn])
    assert all(set(own.tolist()) == set(range(10)) for own in rows.split(10))
    assert len({tuple(own.tolist()) for own in rows.split(10)}) > 1
    for x, y in drawn:
        assert torch.equal(x.flatten() % 5, y)


def test_a_batch_larger_than_the_set_takes_rows_again():
    images = torch.arange(3, dtype=torch.uint8)[:, None]
    rows, _ = next(vhl.virtual_batches(images, 3, 7, seeded()))
    assert sorted(Counter(rows.flatten().tolist()).values()) == [2, 2, 3]


@pytest.mark.parametrize("noise", [vhl.uniform_noise, vhl.smooth_noise])
def test_noise_is_the_generator_s_and_no_two_images_are_alike(noise):
    one, again = (noise(6, (3, 8, 8), seeded(1)) for _ in range(2))
    assert (one.shape, one.dtype) == ((6, 192), torch.uint8)
    assert torch.equal(one, again)
    assert len(torch.cat([one, noise(6, (3, 8, 8), seeded(2))]).unique(dim=0)) == 12


def neighbours_apart(images):
    x = images.view(-1, 16, 16).double()
    return (x[:, :, 1:] - x[:, :, :-1]).abs().mean() / x.std()


def test_smooth_noise_is_smooth_and_fills_the_range():
    smooth = vhl.smooth_noise(50, (1, 16, 16), seeded())
    rough = vhl.uniform_noise(50, (1, 16, 16), seeded())
    assert neighbours_apart(smooth) < 0.3 * neighbours_apart(rough)
    assert 50 < smooth.double().std() < 75
    assert abs(smooth.double().mean() - 127.5) < 2


# Whole runs beside virtual images: what is recorded, sent and noted.


TINY = [
    *("ggeur.fedpg.images_per_class", 3, "ggeur.fedpg.batch_size", 8),
    *("ggeur.fedpg.noise_dim", 4, "ggeur.fedpg.steps", 3),
    *("ggeur.fedpg.generator_batch", 8),
    *("ggeur.vhl.images_per_class", 3, "ggeur.vhl.batch_size", 8),
]
FEDPG = ["ggeur.augmentation", "fedpg"]
NOISE = [*FEDPG, "ggeur.fedpg.source", "noise"]
OF_VHL = ["ggeur.augmentation", "vhl"]


@pytest.fixture
def pictures(quickstart, tmp_path):
    """A run of two rounds of a small network, with settings added to it."""
    words = digits_words(tmp_path / "cache")
    return lambda *more: load_config(quickstart, [*words, *map(str, [*TINY, *more])])


def shares(results):
    return [(record.details or {}).get("virtual_accuracy") for record in results.rounds]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [FEDPG, NOISE, OF_VHL], ids=str)
def test_rounds_say_what_the_images_are_worth_and_bytes_are_foretold(
    pictures, settings
):
    cfg = pictures(*settings, "federate.make_global_eval", True)
    found, results = forecast(set_up(cfg)), run(cfg)
    total = results.final.bytes_up, results.final.bytes_down
    assert (found.total.up, found.total.down) == pytest.approx(total, rel=0.01)
    if settings is OF_VHL:
        assert shares(results) == [None] * 2
    else:
        assert all(0 <= share <= 1 for share in shares(results))
    assert shares(Results.from_json(results.to_json())) == shares(results)


def notes(cfg):
    return "\n".join(Run(cfg).notes)


def test_a_rate_that_hardly_trains_the_generator_is_noted(pictures):
    said = "ggeur.fedpg.lr 2e-05 over 300 falling steps moves a number of the generator"
    paper = ["federate.total_round_num", 1, "ggeur.fedpg.steps", 300]
    assert f"{said} by only about 0.0043 a round" in notes(pictures(*FEDPG, *paper))
    assert "ggeur.fedpg.lr" not in notes(pictures(*FEDPG, "ggeur.fedpg.lr", 0.01))
    assert "ggeur.fedpg.lr" not in notes(pictures(*NOISE))


def test_fedmix_on_pixels_warns_of_pictures(pictures, config):
    said = "fedmix sends to all clients the means of a few pictures of one client"
    fedmix = ["ggeur.augmentation", "fedmix"]
    assert said in notes(pictures(*fedmix))
    assert "pictures" not in notes(config(*fedmix))
    assert "pictures" not in notes(pictures(*FEDPG))
