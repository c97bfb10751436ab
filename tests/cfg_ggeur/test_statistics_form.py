"""What travels of the statistics: as much as is asked for, no more than is needed."""

import pytest

from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.geometry import Compression

NCM = ["ggeur.closed_form", "ncm"]
LDA = ["ggeur.closed_form", "lda"]
START = ["ggeur.init", "closed_form"]
SUMMED = ["ggeur.statistics", "summed"]
COMPRESSED = ["ggeur.statistics", "compressed"]
POOLED = ["ggeur.geometry", "pooled"]
DEFAULT = Compression(170, 0.95, "int8")


def task_of(config, *settings):
    return run_settings(config(*settings), 12, 16, 3).role.task


@pytest.mark.parametrize(
    ("settings", "form"),
    [
        ([], StatisticsForm("class")),
        (LDA, StatisticsForm("class", exact=True)),
        ([*LDA, *SUMMED], StatisticsForm("pooled", exact=True)),
        (["ggeur.closed_form", "fisher"], StatisticsForm("class", exact=True)),
        (NCM, StatisticsForm("means", exact=True)),
        ([*NCM, *SUMMED], StatisticsForm("means", exact=True)),
        ([*NCM, "ggeur.statistics", "means"], StatisticsForm("means", exact=True)),
        # What is trained afterwards may come to need the scatters.
        ([*NCM, *START, "ggeur.steps", []], StatisticsForm("class", exact=True)),
        ([*NCM, *START], StatisticsForm("class", exact=True)),
        ([*NCM, *START, *POOLED, *SUMMED], StatisticsForm("pooled", exact=True)),
        (POOLED, StatisticsForm("class")),
        ([*POOLED, *SUMMED], StatisticsForm("pooled")),
        ([*POOLED, *COMPRESSED], StatisticsForm("pooled", compression=DEFAULT)),
        ([*LDA, *COMPRESSED], StatisticsForm("pooled", True, DEFAULT)),
        ([*NCM, *COMPRESSED], StatisticsForm("means", True, DEFAULT)),
    ],
    ids=str,
)
def test_what_nothing_needs_does_not_travel(config, settings, form):
    assert task_of(config, *settings).statistics == form


def test_compression_is_as_its_keys_say(config):
    keys = ["ggeur.compressed.rank", -1, "ggeur.compressed.energy", 0.5]
    keys += ["ggeur.compressed.dtype", "float16"]
    held = task_of(config, *LDA, *COMPRESSED, *keys).statistics.compression
    assert held == Compression(None, 0.5, "float16")


def test_geometry_is_by_class_unless_pooled(config):
    assert not task_of(config).pooled_geometry
    assert task_of(config, *POOLED).pooled_geometry


def test_all_processes_must_have_them_alike(config):
    agreed = run_settings(config(), 12, 16, 3).agreed
    shared = ("geometry", "statistics", "compressed.rank", "compressed.energy")
    for name in (*shared, "compressed.dtype"):
        assert f"ggeur.{name}" in agreed
