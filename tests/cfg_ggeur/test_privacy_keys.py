"""Hardening beside the threshold: each key closes its gap, and only where it is set."""

import pytest
import torch

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.exchanges.space import SpaceClient
from federatedscope_ggeur.federation.exchanges.statistics.exchange import (
    StatisticsClient,
)

SPARSE = ["data.splitter_args", "[{'alpha': 0.05}]", "federate.client_num", 9]
RAW = ["ggeur.space", "raw", "ggeur.steps", [1], "federate.total_round_num", 1]


def test_the_rows_of_the_forecast_are_those_trained_on(config):
    from federatedscope_ggeur.cfg_ggeur.start_notes import set_rows

    settings = ["ggeur.privacy.train_withheld", False, "ggeur.steps", [1, 2]]
    going = Run(config(*SPARSE, *settings))
    going.follow(lambda record: None)
    rows = [client.recipe.rows for client in going.engine.clients.values()]
    assert set_rows(going.settings, going.held).tolist() == rows


def test_means_are_rounded_before_they_travel_and_nothing_else_is(config):
    def upload(*settings):
        going = Run(config("ggeur.closed_form", "lda", *settings))
        return going.engine.side(1, StatisticsClient).statistics().statistics

    plain, coarse = upload(), upload("ggeur.privacy.float32_means", True)
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


def test_the_mean_of_all_others_is_for_totals(config):
    with pytest.raises(
        ConfigError, match=r"ggeur.prototypes: must be domain or client"
    ):
        config("ggeur.prototypes", "others")
