"""What travels of the statistics: as much as is asked for, no more than is needed."""

import pytest
import torch

from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.federation.exchanges.space import SpaceClient
from federatedscope_ggeur.federation.exchanges.statistics import Compress, exchange
from federatedscope_ggeur.geometry import Compression

NCM = ["ggeur.closed_form", "ncm"]
LDA = ["ggeur.closed_form", "lda"]
START = ["ggeur.init", "closed_form"]
CLASS = ["ggeur.statistics", "class"]
SUMMED = ["ggeur.statistics", "summed"]
COMPRESSED = ["ggeur.statistics", "compressed"]
POOLED = ["ggeur.geometry", "pooled"]
PACKED = Compress(Compression(170, 0.95, "int8"))


def task_of(config, *settings):
    return run_settings(config(*settings), 12, 16, 3).role.task


@pytest.mark.parametrize(
    ("settings", "form"),
    [
        ([], ("class", False, None)),
        (LDA, ("pooled", True, None)),
        ([*LDA, *START, *POOLED], ("pooled", True, None)),
        ([*LDA, *SUMMED], ("pooled", True, None)),
        (NCM, ("means", True, None)),
        ([*NCM, *SUMMED], ("means", True, None)),
        ([*NCM, "ggeur.statistics", "means"], ("means", True, None)),
        ([*NCM, *START, "ggeur.steps", []], ("means", True, None)),
        ([*NCM, *CLASS], ("class", True, None)),
        ([*NCM, *START], ("class", True, None)),
        ([*NCM, *START, *POOLED, *SUMMED], ("pooled", True, None)),
        (POOLED, ("pooled", False, None)),
        ([*POOLED, *CLASS], ("class", False, None)),
        ([*POOLED, *SUMMED], ("pooled", False, None)),
        ([*POOLED, *COMPRESSED], ("pooled", False, PACKED)),
        ([*LDA, *COMPRESSED], ("pooled", True, PACKED)),
        ([*NCM, *COMPRESSED], ("means", True, PACKED)),
    ],
    ids=str,
)
def test_what_nothing_needs_does_not_travel(config, settings, form):
    held = task_of(config, *settings).statistics
    assert (held.content, held.exact, held.packing) == form


def test_compression_is_as_its_keys_say(config):
    keys = ["ggeur.compressed.rank", -1, "ggeur.compressed.energy", 0.5]
    keys += ["ggeur.compressed.dtype", "float16"]
    packing = task_of(config, *LDA, *COMPRESSED, *keys).statistics.packing
    assert packing.how == Compression(None, 0.5, "float16")


def test_geometry_is_by_class_unless_pooled(config):
    assert not task_of(config).pooled_geometry
    assert task_of(config, *POOLED).pooled_geometry


# Hardening beside the threshold: each key closes its gap, and only where it is set.


def test_means_are_rounded_before_they_travel_and_nothing_else_is(config):
    def upload(*settings):
        going = Run(config("ggeur.closed_form", "lda", *settings))
        return going.engine.side(1, exchange.StatisticsClient).statistics().statistics

    plain, coarse = upload(), upload("ggeur.privacy.float32_means", True)
    assert not torch.equal(plain.means, plain.means.float().double())
    assert torch.equal(coarse.means, plain.means.float().double())
    assert torch.equal(coarse.scatter(), plain.scatter())


def test_the_totals_are_rounded_as_well(config):
    settings = ["ggeur.steps", [], "ggeur.space", "standard"]
    going = Run(config(*settings, "ggeur.privacy.float32_means", True))
    mean = going.engine.side(1, SpaceClient).totals().totals.mean
    assert torch.equal(mean, mean.float().double())
