"""What `ggeur.space` asks of clients, and what it cannot go with."""

import pytest

from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.exchanges.base import answered_kinds
from federatedscope_ggeur.federation.exchanges.space import TOTALS
from federatedscope_ggeur.federation.exchanges.statistics.exchange import STATISTICS
from federatedscope_ggeur.federation.wire.schema import StatisticsForm

STANDARD, WHITENED = ["ggeur.space", "standard"], ["ggeur.space", "whitened"]
PLAIN, LOCAL = ["ggeur.steps", []], ["ggeur.base_method", "local"]
LDA = ["ggeur.closed_form", "lda"]
NCM = ["ggeur.closed_form", "ncm"]
START = ["ggeur.init", "closed_form"]


def settings_of(config, *settings):
    return run_settings(config(*settings), 12, 16, 3)


@pytest.mark.parametrize(
    ("settings", "statistics", "totals"),
    [
        (["ggeur.space", "raw", *PLAIN], False, False),
        (["ggeur.space", "raw"], True, False),
        ([*STANDARD, *PLAIN], False, True),
        (STANDARD, True, True),
        ([*WHITENED, *PLAIN], True, True),
        # Without training there is no space, and by itself each client has its own.
        ([*STANDARD, *LDA], True, False),
        ([*STANDARD, *LDA, *START], True, True),
        ([*STANDARD, *PLAIN, *LOCAL], False, False),
        ([*WHITENED, *PLAIN, *LOCAL], False, False),
        ([*STANDARD, *LOCAL], True, True),
    ],
    ids=str,
)
def test_what_clients_answer(config, settings, statistics, totals):
    chosen = settings_of(config, *settings)
    answered = answered_kinds(chosen.demands)
    assert (STATISTICS in answered) == statistics
    assert (TOTALS in answered) == totals


def test_both_roles_are_told_the_same(config):
    chosen = settings_of(config, *WHITENED, "ggeur.whitened.shrinkage", 0.5)
    assert chosen.role.task.space.shrinkage == 0.5
    assert {"ggeur.space", "ggeur.whitened.shrinkage"} <= chosen.agreed.keys()


def test_one_scatter_is_enough_for_a_white_space(config):
    settings = [*WHITENED, *PLAIN, "ggeur.statistics", "summed"]
    form = settings_of(config, *settings).role.task.statistics
    assert form == StatisticsForm("pooled")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["ggeur.space", "white"], r"ggeur\.space: must be one of"),
        ([*WHITENED, "ggeur.whitened.shrinkage", 0.0], r"whitened\.shrinkage: must be"),
        ([*STANDARD, *PLAIN, "ggeur.statistics", "summed"], r"ggeur\.space: whitened"),
        (
            [*NCM, *START, *WHITENED, *PLAIN, "ggeur.statistics", "means"],
            r"ggeur\.statistics: must be .* with ggeur\.space: whitened",
        ),
        (
            [*WHITENED, "ggeur.augmentation", "fedmix"],
            r"ggeur\.space: must be standard or raw .*fedmix",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(config, settings, problem):
    with pytest.raises(ConfigError, match=problem):
        config(*settings, "ggeur.privacy.min_samples", 5)


def test_fedmix_may_be_white_where_single_rows_may_be_told(config):
    settings = [*WHITENED, "ggeur.augmentation", "fedmix"]
    assert config(*settings, "ggeur.privacy.min_samples", 1)
