"""Augmentations of training images, beside plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from image_federations import seeded

from federatedscope_ggeur.extras.networks import base
from federatedscope_ggeur.extras.networks.keys import stage_numbers
from federatedscope_ggeur.extras.networks.methods.feature_statistics import BatchDraws

ACTING = {name: act for name, act in base.AUGMENTATIONS.items() if act}


def images(n=6, channels=3, side=8, seed=0):
    return torch.rand(n, channels, side, side, generator=seeded(seed))


@pytest.mark.parametrize("act", ACTING.values(), ids=ACTING)
@given(
    n=st.integers(1, 5),
    channels=st.sampled_from([1, 3]),
    side=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_shapes_range_and_draws(act, n, channels, side, seed):
    x = images(n, channels, side, seed)
    found = act(x, seeded(seed))
    assert found.shape == x.shape
    assert torch.equal(found, act(x, seeded(seed)))
    assert torch.equal(x, images(n, channels, side, seed))
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-6


@pytest.mark.parametrize("act", ACTING.values(), ids=ACTING)
def test_images_of_a_batch_are_drawn_apart(act):
    x = images(1).expand(20, -1, -1, -1).contiguous()
    found = act(x, seeded())
    assert len({tuple(image.flatten().tolist()) for image in found}) > 5


def test_crops_are_windows_of_the_padded_image():
    """Each is one of the 81 windows or its mirror image, and all happen."""
    x = images(400, 2, 8)
    found = base.crop_flip(x, seeded()).numpy()
    seen = set()
    for image, crop in zip(np.pad(x.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4))), found):
        windows = {
            (dy, dx, flip): image[:, dy : dy + 8, dx : dx + 8][
                ..., :: -1 if flip else 1
            ]
            for dy in range(9)
            for dx in range(9)
            for flip in (False, True)
        }
        match = [w for w, window in windows.items() if np.array_equal(window, crop)]
        assert match
        seen.add(match[0])
    assert {dy for dy, _, _ in seen} == {dx for _, dx, _ in seen} == set(range(9))
    flips = [flip for *_, flip in seen]
    assert 0.3 < np.mean(flips) < 0.7


def test_without_an_angle_it_mirrors_alone(monkeypatch):
    monkeypatch.setattr(base, "_DEGREES", 0.0)
    x = images(30)
    found = base.flip_rotate(x, seeded())
    mirrored = [torch.allclose(f, i.flip(-1), atol=1e-5) for f, i in zip(found, x)]
    same = [torch.allclose(f, i, atol=1e-5) for f, i in zip(found, x)]
    assert all(a != b for a, b in zip(mirrored, same))
    assert 5 < sum(mirrored) < 25


def test_turning_keeps_the_middle_of_a_ring():
    """A radial picture stays what it is, whatever the angle."""
    line = torch.linspace(-1, 1, 33)
    radius = (line[:, None] ** 2 + line**2).sqrt()
    x = (1 - radius).clamp(min=0).expand(8, 1, 33, 33).contiguous()
    found = base.flip_rotate(x, seeded())
    torch.testing.assert_close(found, x, rtol=0, atol=0.03)


def test_the_whole_part_is_the_image_but_for_colours(monkeypatch):
    monkeypatch.setattr(base, "_SCALE", (1.0, 1.0))
    monkeypatch.setattr(base, "_LOG_RATIO", (0.0, 0.0))
    monkeypatch.setattr(base, "_JITTER", 0.0)
    monkeypatch.setattr(base, "_GREY", 0.0)
    x = images(20)
    found = base.resized_crop(x, seeded())
    for image, back in zip(x, found):
        either = (image, image.flip(-1))
        assert any(torch.allclose(back, one, atol=1e-5) for one in either)


def test_parts_lie_within_the_image():
    """No black edge: an image of ones stays one, but for its brightness."""
    x = torch.full((50, 1, 16, 16), 0.5)
    found = base.resized_crop(x, seeded())
    spread = found.amax(dim=(1, 2, 3)) - found.amin(dim=(1, 2, 3))
    assert spread.max() < 1e-5


def test_grey_is_grey(monkeypatch):
    monkeypatch.setattr(base, "_GREY", 1.0)
    found = base.resized_crop(images(), seeded())
    assert torch.equal(found[:, 0], found[:, 1])
    assert torch.equal(found[:, 0], found[:, 2])


# Stages in settings, and draws that come again with their batch.


@pytest.mark.parametrize("value", [[], [1], [2, 4, 5], (1, 2), [1.0, 3.0]])
def test_lists_of_stages(value):
    assert stage_numbers(value) == ""


@pytest.mark.parametrize("value", [1, "1", [0], [1, 1], [3, 2], [1.5], [True], [None]])
def test_what_is_no_list_of_stages(value):
    assert "must be an ascending list of stages" in stage_numbers(value)


def test_draws_come_again_until_the_next_batch():
    numbers = iter(range(10))
    draws = BatchDraws(lambda stage, maps: (stage, next(numbers)))
    maps = torch.zeros(1, 1, 1, 1)
    assert draws.of(0, maps) == ((0, 0), True)
    assert draws.of(0, maps) == ((0, 1), True)  # no batch has been announced
    for first in (2, 4):
        rows = torch.zeros(3, 2)
        assert draws.new_batch(rows, torch.zeros(3)) is rows
        assert draws.of(0, maps) == ((0, first), True)
        assert draws.of(1, maps) == ((1, first + 1), True)
        assert draws.of(0, maps) == ((0, first), False)
        assert draws.of(1, maps) == ((1, first + 1), False)
