"""Sets of virtual images: their labels, bytes and order; noise of two kinds."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from digits_network import digits_words
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from image_federations import seeded

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.extras.networks.methods import vhl
from federatedscope_ggeur.reporting import Results


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
    batches = vhl.VirtualBatches(images, 5, 4, seeded())
    drawn = [next(batches) for _ in range(10)]
    assert all(x.shape == (4, 1) and x.dtype == torch.uint8 for x, _ in drawn)
    rows = torch.cat([x.flatten() for x, _ in drawn])
    assert all(set(own.tolist()) == set(range(10)) for own in rows.split(10))
    assert len({tuple(own.tolist()) for own in rows.split(10)}) > 1
    for x, y in drawn:
        assert torch.equal(x.flatten() % 5, y)


def test_a_batch_larger_than_the_set_takes_rows_again():
    images = torch.arange(3, dtype=torch.uint8)[:, None]
    rows, _ = next(vhl.VirtualBatches(images, 3, 7, seeded()))
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
#
# What the methods do is said by test_fedpg.py and test_vhl.py.


TINY = [
    *("ggeur.fedpg.images_per_class", 3, "ggeur.fedpg.batch_size", 8),
    *("ggeur.fedpg.noise_dim", 4, "ggeur.fedpg.steps", 3),
    *("ggeur.fedpg.generator_batch", 8),
    *("ggeur.vhl.images_per_class", 3, "ggeur.vhl.batch_size", 8),
]
FEDPG = ["ggeur.augmentation", "fedpg"]
NOISE = [*FEDPG, "ggeur.fedpg.source", "noise"]
VHL = ["ggeur.augmentation", "vhl"]


@pytest.fixture
def pictures(quickstart, tmp_path):
    """A run of two rounds of a small network, with settings added to it."""
    words = digits_words(tmp_path / "cache")
    return lambda *more: load_config(quickstart, [*words, *map(str, [*TINY, *more])])


def shares(results):
    return [(record.details or {}).get("virtual_accuracy") for record in results.rounds]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [FEDPG, NOISE, VHL], ids=str)
def test_rounds_say_what_the_images_are_worth_and_bytes_are_foretold(
    pictures, settings
):
    cfg = pictures(*settings, "federate.make_global_eval", True)
    found, results = forecast(set_up(cfg)), run(cfg)
    total = results.final.bytes_up, results.final.bytes_down
    assert (found.total.up, found.total.down) == pytest.approx(total, rel=0.01)
    if settings is VHL:
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
