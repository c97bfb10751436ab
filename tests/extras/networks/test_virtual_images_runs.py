"""Whole runs beside virtual images: what is recorded, sent and noted.

What the methods do is said by test_fedpg.py and test_vhl.py.
"""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.reporting import Results

pytestmark = pytest.mark.slow

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
def pictures(quickstart, pictures_of_digits):
    """A run of three rounds of a small network, with settings added to it."""

    def load(*settings):
        return load_config(
            quickstart, [*pictures_of_digits, *map(str, [*TINY, *settings])]
        )

    return load


def shares(results):
    return [(record.details or {}).get("virtual_accuracy") for record in results.rounds]


@pytest.mark.parametrize("settings", [FEDPG, NOISE, VHL], ids=str)
def test_rounds_say_what_the_images_are_worth_and_bytes_are_foretold(
    pictures, settings
):
    cfg = pictures(*settings, "federate.make_global_eval", True)
    found, results = forecast(set_up(cfg)), run(cfg)
    assert (found.total.up, found.total.down) == (
        results.final.bytes_up,
        results.final.bytes_down,
    )
    if settings is VHL:
        assert shares(results) == [None] * 3
    else:
        assert all(0 <= share <= 1 for share in shares(results))
    assert shares(Results.from_json(results.to_json())) == shares(results)


def test_images_go_down_as_bytes_to_those_who_are_drawn(pictures):
    drawn = ["federate.sample_client_num", 2, *FEDPG]
    first, second, _ = run(pictures(*drawn)).rounds
    size = 10 * 3 * 64  # classes, images of each, pixels
    more = second.bytes_down - first.bytes_down
    assert 2 * size <= more < 2 * size + 100


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
