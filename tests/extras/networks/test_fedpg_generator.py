"""FedPG's generator: its sizes, its loss by numpy, its gradient, its draws."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from federatedscope_ggeur.extras.networks.methods.fedpg import (
    GeneratorTraining,
    ImageGenerator,
    generator_loss,
    virtual_prototypes,
)

SCALE, STRENGTH = 2.0, 0.001


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def trainable(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("shape", "size"),
    [((3, 32, 32), 3_909_504), ((1, 28, 28), 1_564_304), ((3, 64, 64), 13_355_904)],
)
def test_the_fully_connected_one_has_the_authors_size(shape, size):
    assert trainable(ImageGenerator(512, 10, shape)) == size


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 10, 10), (1, 7, 7)])
class TestDraws:
    def made(self, shape):
        return ImageGenerator(4, 3, shape).reset(seeded())

    def test_they_are_balanced_rows_of_pixels(self, shape):
        images = self.made(shape).draw(5, seeded(1))
        assert images.shape == (15, np.prod(shape))
        assert images.dtype == torch.uint8

    def test_numbers_lie_within_one_and_move_with_label_and_noise(self, shape):
        made = self.made(shape).eval()
        noise = torch.rand(4, 4, generator=seeded(2))
        noise[1] = noise[0]
        images = made(noise, torch.tensor([0, 1, 0, 0]))
        assert images.abs().max() <= 1
        assert not torch.equal(images[0], images[1])
        assert not torch.equal(images[2], images[3])

    def test_running_statistics_stay(self, shape):
        made = self.made(shape)
        before = {n: t.clone() for n, t in made.state_dict().items()}
        made.draw(5, seeded(1))
        assert all(torch.equal(t, before[n]) for n, t in made.state_dict().items())


def test_the_start_is_drawn_as_torch_does_from_the_generator_alone():
    one, again = (ImageGenerator(6, 4, (1, 8, 8)).reset(seeded(3)) for _ in "ab")
    for mine, other in zip(one.parameters(), again.parameters()):
        assert torch.equal(mine, other)
    for layer in one.layers:
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            bound = layer.weight[0].numel() ** -0.5
            assert 0.9 * bound < layer.weight.abs().max() <= bound
            assert 0 < layer.bias.abs().max() <= bound


def oracle(z, labels, virtual, prototypes, known):
    """L_G by loops over images and classes."""

    def softmax_loss(squares, own):
        return SCALE * squares[own] + np.log(np.exp(-SCALE * squares).sum())

    total = 0.0
    for row, y in zip(z, labels):
        squares = np.array([((row - p) ** 2).sum() for p in virtual])
        total += (softmax_loss(squares, y) + STRENGTH * squares[y]) / len(z)
    for i, c in enumerate(known):
        squares = np.array([((virtual[c] - p) ** 2).sum() for p in prototypes])
        total += softmax_loss(squares, i) / len(known)
    return total


def numbers(seed, known):
    rng = np.random.default_rng(seed)
    z, virtual = 0.5 * rng.normal(size=(5, 3)), 0.5 * rng.normal(size=(4, 3))
    prototypes = 0.5 * rng.normal(size=(len(known), 3))
    labels = rng.integers(4, size=5)
    known = np.array(known, dtype=np.int64)
    return z, labels, virtual, prototypes, known


@given(st.integers(0, 10**6), st.sets(st.integers(0, 3)))
@settings(max_examples=40, deadline=None)
def test_the_loss_is_that_of_loops(seed, known):
    given = numbers(seed, sorted(known))
    found = generator_loss(*map(torch.tensor, given), SCALE, STRENGTH)
    np.testing.assert_allclose(found.item(), oracle(*given), rtol=1e-9)


class TestVirtualPrototypes:
    def test_without_known_classes_they_are_normal(self):
        none = torch.zeros(0, 400), torch.zeros(0, dtype=torch.int64)
        drawn = virtual_prototypes((5, 400), *none, seeded())
        assert torch.equal(drawn, torch.randn(5, 400, generator=seeded()))

    def test_known_classes_start_at_theirs_others_around_the_mean(self):
        prototypes = 3 + 0.1 * torch.randn(3, 400, generator=seeded(1))
        known = torch.tensor([0, 2, 3])
        drawn = virtual_prototypes((5, 400), prototypes, known, seeded())
        assert torch.equal(drawn[known], prototypes)
        for c in (1, 4):
            assert abs(drawn[c].mean() - 3) < 0.05
            assert 0.05 < drawn[c].std() < 0.2


class Flat(nn.Module):
    """A model of one layer on 16 pixels."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 3)
        nn.init.normal_(self.layer.weight, generator=seeded(4))
        self.requires_grad_(False)

    def prepare(self, rows):
        return 2 * rows - 1

    def represent(self, x):
        return self.layer(x)


def training(**changes):
    settings = {"steps": 60, "batch_size": 32, "lr": 0.01, "prototype_lr": 0.05}
    return GeneratorTraining(
        **{**settings, "scale": SCALE, "strength": STRENGTH, **changes}
    )


class TestTraining:
    known = torch.tensor([0, 2])
    prototypes = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, -2.0]])

    def run(self, model, **changes):
        made = ImageGenerator(4, 4, (1, 4, 4)).reset(seeded())
        virtual = torch.randn(4, 3, generator=seeded(5))
        moved = training(**changes).run(
            made, model, virtual, self.prototypes, self.known, seeded(6)
        )
        return made, virtual, moved

    @pytest.mark.slow
    def test_images_come_to_lie_near_their_prototypes(self):
        model = Flat()
        made, _, virtual = self.run(model, steps=200)
        images = made.draw(20, seeded(7)).float() / 127.5 - 1
        nearest = torch.cdist(model.represent(images), virtual).argmin(dim=1)
        labels = torch.arange(80) % 4
        assert (nearest == labels).double().mean() > 0.9

    @pytest.mark.slow
    def test_virtual_prototypes_come_to_those_of_the_clients(self):
        _, before, after = self.run(Flat(), steps=200)
        squares = torch.cdist(after[self.known], self.prototypes)
        assert squares.argmin(dim=1).tolist() == [0, 1]
        apart = [(v[self.known] - self.prototypes).norm() for v in (before, after)]
        assert apart[1] < apart[0]

    @pytest.mark.slow
    def test_the_frozen_model_stays(self):
        model = Flat()
        before = {n: t.clone() for n, t in model.state_dict().items()}
        self.run(model)
        assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())

    @pytest.mark.slow
    def test_a_rate_of_zero_moves_the_one_thing_and_not_the_other(self):
        start = ImageGenerator(4, 4, (1, 4, 4)).reset(seeded())
        made, before, after = self.run(Flat(), lr=1e-30)
        for one, other in zip(made.parameters(), start.parameters()):
            torch.testing.assert_close(one, other)
        assert not torch.equal(before, after)
        _, before, after = self.run(Flat(), prototype_lr=1e-30)
        torch.testing.assert_close(before, after)
