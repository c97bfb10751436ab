"""Hardening beside the threshold: each key closes its gap, and only where it is set."""

import pytest
import torch

from federatedscope_ggeur.audit.base import Clock
from federatedscope_ggeur.audit.head_updates import a4, a5
from federatedscope_ggeur.audit.told_numbers import a7
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.engines.transcript import recorded, truth_of
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.exchanges.space.exchange import SpaceClient

SPARSE = ["data.splitter_args", "[{'alpha': 0.05}]", "federate.client_num", 9]
RAW = ["ggeur.space", "raw", "ggeur.steps", [1], "federate.total_round_num", 1]


def attacked(config, attack, *settings):
    going = Run(config(*SPARSE, *RAW, *settings))
    found = list(attack(recorded(going), truth_of(going), Clock(10)))
    return found[0], going


@pytest.mark.slow
def test_what_a_client_counts_for_says_what_is_withheld_unless_told_not_to(config):
    plain, _ = attacked(config, a7)
    assert plain.passed is False
    closed, going = attacked(config, a7, "ggeur.weight", "statistics")
    assert closed.passed is True
    for k, client in going.engine.clients.items():
        counts = going.held.counts[going.held.numbers.index(k)]
        assert client.aggregation_weight == counts[counts >= 5].sum()


@pytest.mark.slow
def test_withheld_rows_are_not_in_an_update_where_they_are_not_trained_on(config):
    """A5 is of classes held: withheld ones are then like absent ones."""
    settings = ["ggeur.steps", [], "train.batch_or_epoch", "batch"]
    settings += ["train.local_update_steps", 1, "dataloader.batch_size", 512]
    plain, _ = attacked(config, a4, *settings)
    assert plain.value > 0
    off = ["ggeur.privacy.train_withheld", False]
    closed, going = attacked(config, a4, *settings, *off)
    assert (closed.value, closed.passed) == (0.0, True)
    for client in going.engine.clients.values():
        _, labels = client.recipe.draw()
        assert (torch.bincount(labels, minlength=12)[labels] >= 5).all()
    by_bias, _ = attacked(config, a5, *settings, *off)
    plainly, _ = attacked(config, a5, *settings)
    assert by_bias.value < plainly.value


def test_the_rows_of_the_forecast_are_those_trained_on(config):
    from federatedscope_ggeur.cfg_ggeur.start_notes import set_rows

    settings = ["ggeur.privacy.train_withheld", False, "ggeur.steps", [1, 2]]
    going = Run(config(*SPARSE, *settings))
    going.follow(lambda record: None)
    rows = [client.recipe.rows for client in going.engine.clients.values()]
    assert set_rows(going.settings, going.held).tolist() == rows


def test_means_are_rounded_before_they_travel_and_nothing_else_is(config):
    def uploads(*settings):
        going = Run(config("ggeur.closed_form", "lda", *settings))
        seen = recorded(going)
        return seen.uploads[1], going

    plain, _ = uploads()
    coarse, _ = uploads("ggeur.privacy.float32_means", True)
    assert not torch.equal(plain.means, plain.means.float().double())
    assert torch.equal(coarse.means, plain.means.float().double())
    for c in plain.classes:
        assert torch.equal(coarse.scatter(c), plain.scatter(c))


def test_the_totals_are_rounded_as_well(config):
    settings = ["ggeur.steps", [], "ggeur.space", "standard"]
    space = [
        run(config(*settings, "ggeur.privacy.float32_means", on)).round0.space
        for on in (False, True)
    ]
    assert space[0]["distance"] == pytest.approx(space[1]["distance"], rel=1e-6)
    going = Run(config(*settings, "ggeur.privacy.float32_means", True))
    mean = going.engine.side(1, SpaceClient).totals().totals.mean
    assert torch.equal(mean, mean.float().double())


def test_what_cannot_be_is_refused_by_name(config, quickstart):
    with pytest.raises(ConfigError, match=r"ggeur.weight: cannot be statistics"):
        config("ggeur.weight", "statistics", "ggeur.steps", [])
    with pytest.raises(ConfigError, match=r"ggeur.weight: cannot be statistics"):
        config(
            *("ggeur.weight", "statistics", "ggeur.privacy.secure_sums", "statistics"),
            *("ggeur.geometry", "pooled", "ggeur.prototypes", "others"),
        )
    with pytest.raises(ConfigError, match=r"ggeur.privacy.train_withheld"):
        config(
            *("ggeur.network.name", "digits_cnn", "ggeur.encoder.name", "image"),
            *("ggeur.privacy.train_withheld", False),
        )
