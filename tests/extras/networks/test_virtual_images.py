"""Sets of virtual images: their labels, bytes and order; noise of two kinds."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.extras.networks.methods.vhl import (
    VirtualBatches,
    labels_of,
    smooth_noise,
    to_pixels,
    uniform_noise,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_labels_take_turns():
    assert labels_of(torch.zeros(7, 2), 3).tolist() == [0, 1, 2, 0, 1, 2, 0]


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_a_number_comes_back_from_its_pixel_to_half_a_step(seed):
    images = 2 * torch.rand(4, 9, generator=seeded(seed)) - 1
    pixels = to_pixels(images)
    assert pixels.dtype == torch.uint8
    back = pixels.double() / 127.5 - 1
    assert (back - images.double()).abs().max() <= 1 / 255 + 1e-6


def test_the_ends_are_the_ends():
    assert to_pixels(torch.tensor([-1.0, 0.0, 1.0, -9.0, 9.0])).tolist() == [
        *(0, 128, 255),
        *(0, 255),
    ]


def test_every_pass_takes_each_row_once_in_an_order_of_its_own():
    images = torch.arange(10, dtype=torch.uint8)[:, None]
    batches = VirtualBatches(images, 5, 4, seeded())
    drawn = [next(batches) for _ in range(10)]
    assert all(x.shape == (4, 1) and x.dtype == torch.uint8 for x, _ in drawn)
    rows = torch.cat([x.flatten() for x, _ in drawn])
    assert all(set(own.tolist()) == set(range(10)) for own in rows.split(10))
    assert len({tuple(own.tolist()) for own in rows.split(10)}) > 1
    for x, y in drawn:
        assert torch.equal(x.flatten() % 5, y)


def test_a_batch_larger_than_the_set_takes_rows_again():
    images = torch.arange(3, dtype=torch.uint8)[:, None]
    rows, _ = next(VirtualBatches(images, 3, 7, seeded()))
    assert sorted(Counter(rows.flatten().tolist()).values()) == [2, 2, 3]


@pytest.mark.parametrize("noise", [uniform_noise, smooth_noise])
class TestNoise:
    def test_rows_are_uint8_and_the_generator_s(self, noise):
        one, again = (noise(6, (3, 8, 8), seeded(1)) for _ in range(2))
        assert one.shape == (6, 192)
        assert one.dtype == torch.uint8
        assert torch.equal(one, again)
        assert not torch.equal(one, noise(6, (3, 8, 8), seeded(2)))

    def test_no_two_images_are_alike(self, noise):
        images = noise(6, (1, 8, 8), seeded(1))
        assert len(images.unique(dim=0)) == 6


def neighbours_apart(images):
    x = images.view(-1, 16, 16).double()
    return (x[:, :, 1:] - x[:, :, :-1]).abs().mean() / x.std()


def test_smooth_noise_is_smooth_and_fills_the_range():
    smooth = smooth_noise(50, (1, 16, 16), seeded())
    rough = uniform_noise(50, (1, 16, 16), seeded())
    assert neighbours_apart(smooth) < 0.3 * neighbours_apart(rough)
    assert 50 < smooth.double().std() < 75
    assert abs(smooth.double().mean() - 127.5) < 2
