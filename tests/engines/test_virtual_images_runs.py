"""Whole runs beside virtual images: what is recorded, sent, kept; what is refused."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting import Results, Round0, numbers

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


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("settings", [FEDPG, NOISE], ids=["generator", "noise"])
def test_every_round_says_what_the_images_are_worth(pictures, norm, settings):
    results = run(pictures("ggeur.network.norm", norm, *settings))
    assert all(0 <= share <= 1 for share in shares(results))
    again = Results.from_json(results.to_json())
    assert shares(again) == shares(results)
    plain = run(pictures("ggeur.network.norm", norm, "ggeur.augmentation", "none"))
    assert shares(plain) == [None] * 3
    assert plain.rounds[0].accuracy == results.rounds[0].accuracy
    assert plain.rounds[2].loss != results.rounds[2].loss


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("name", ["fedpg", "vhl"])
def test_without_both_terms_the_scores_are_fedavg_s(pictures, norm, name):
    own = ["ggeur.network.norm", norm, "federate.sample_client_num", 2]
    off = [f"ggeur.{name}.virtual", 0, f"ggeur.{name}.alignment", 0]
    results = run(pictures(*own, "ggeur.augmentation", name, *off))
    plain = run(pictures(*own, "ggeur.augmentation", "none"))
    assert [r.accuracy for r in results.rounds] == [r.accuracy for r in plain.rounds]
    assert [r.loss for r in results.rounds] == [r.loss for r in plain.rounds]


def test_images_go_down_as_bytes_to_those_who_are_drawn(pictures):
    drawn = ["federate.sample_client_num", 2, *FEDPG]
    first, second, _ = run(pictures(*drawn)).rounds
    size = 10 * 3 * 64  # classes, images of each, pixels
    more = second.bytes_down - first.bytes_down
    assert 2 * size <= more < 2 * size + 100


@pytest.mark.parametrize("settings", [FEDPG, NOISE, VHL], ids=str)
def test_bytes_are_those_foretold(pictures, settings):
    cfg = pictures(*settings, "federate.make_global_eval", True)
    found, results = forecast(set_up(cfg)), run(cfg)
    assert (found.total.up, found.total.down) == (
        results.final.bytes_up,
        results.final.bytes_down,
    )


@pytest.mark.parametrize(
    "settings", [FEDPG, NOISE, [*FEDPG, "ggeur.fedpg.prototypes", "kept"]], ids=str
)
def test_a_run_that_was_stopped_goes_on_to_the_bit(pictures, tmp_path, settings):
    own = [*settings, "federate.sample_client_num", 2]
    path = tmp_path / "checkpoint"
    stopped = Run(pictures(*own, "federate.save_to", path))
    for record in stopped.engine.run():
        if not isinstance(record, Round0) and record.round == 2:
            break
    resumed = run(pictures(*own, "federate.restore_from", path))
    whole = run(pictures(*own))
    assert numbers(resumed)["rounds"] == numbers(whole)["rounds"]


@pytest.mark.parametrize("name", ["fedpg", "vhl"])
def test_a_head_on_embeddings_is_refused_by_name(config, name):
    with pytest.raises(ConfigError, match=rf"{name}.* ggeur\.network\.name"):
        run(config("ggeur.augmentation", name))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fedpg.source", "images"),
        ("fedpg.generator", "gan"),
        ("fedpg.prototypes", "random"),
        ("fedpg.batch_size", 1),
        ("fedpg.images_per_class", 0),
        ("fedpg.temperature", 0),
        ("fedpg.virtual", -1),
        ("fedpg.until_round", -2),
        ("fedpg.prototype_lr", 0),
        ("vhl.align_epochs", -1),
        ("fpl.temperature", 0),
    ],
)
def test_wrong_settings_are_refused_by_name(pictures, key, value):
    with pytest.raises(ConfigError, match=rf"ggeur\.{key}: must (be|lie)"):
        pictures(f"ggeur.{key}", value)


def test_fpl_trains_a_network(pictures):
    plain = run(pictures("ggeur.augmentation", "none"))
    results = run(pictures("ggeur.augmentation", "none", "ggeur.base_method", "fpl"))
    assert results.rounds[0].loss == plain.rounds[0].loss
    assert results.rounds[2].loss != plain.rounds[2].loss


def notes(cfg):
    return "\n".join(run(cfg).notes)


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
