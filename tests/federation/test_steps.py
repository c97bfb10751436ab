"""A step of a plugin: both sides are taken where it is named, and nowhere else."""

from dataclasses import replace

import pytest
import torch

from federatedscope_ggeur import register_step, run
from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.federation.exchanges.statistics import (
    StatisticsExchange,
    Threshold,
)
from federatedscope_ggeur.federation.steps import STEPS, Step
from federatedscope_ggeur.settings import Section, key, positive

NAMED = ["ggeur.plugins", [__name__]]
LDA = ["ggeur.closed_form", "lda", "ggeur.statistics", "summed"]


@pytest.fixture
def contents(monkeypatch):
    """What the statistics hold that a plugin's step `larger` gets."""
    monkeypatch.setattr(STEPS, "_parts", dict(STEPS))
    seen = []

    class LargerKeys(Section):
        PREFIX = "larger."
        there: float = key(2.0, "Factor of the client.", positive)
        back: float = key(2.0, "Factor of the server.", positive)

    @register_step("larger")
    class Larger(Step):
        SETTINGS = LargerKeys

        @classmethod
        def of(cls, run):
            return cls(run.of(LargerKeys))

        def __init__(self, own):
            self.own = own

        def leave(self, statistics):
            seen.append(statistics.content)
            return statistics.with_means(statistics.means * self.own.there)

        def arrive(self, statistics):
            return statistics.with_means(statistics.means / self.own.back)

    return seen


def head_of(config, *settings):
    return run(config(*LDA, *settings)).model.classifier.weight


def test_both_sides_are_taken_before_scatters_are_summed(config, contents):
    plain = head_of(config)
    assert not contents
    assert torch.equal(head_of(config, *NAMED), plain)
    assert contents == ["class"] * 3
    one_sided = head_of(config, *NAMED, "ggeur.larger.back", 1.0)
    assert not torch.allclose(one_sided, plain)


def test_it_is_refused_where_no_client_sends_statistics(config, contents):
    run = replace(demands_of(config(*LDA, *NAMED)), brings_totals=True)
    ((field, problem),) = StatisticsExchange.objections(run)
    assert field == "plugins"
    assert "the step 'larger'" in problem


def test_what_cannot_be_registered():
    with pytest.raises(TypeError, match="must be a subclass of Step"):
        register_step("mine")(object)
    mine = type("Mine", (Threshold,), {"SETTINGS": type("Own", (Section,), {})})
    with pytest.raises(TypeError, match=r"'mine' must have PREFIX = 'mine\.'"):
        register_step("mine")(mine)
    with pytest.raises(ValueError, match="'compress' is already registered"):
        register_step("compress")(Threshold)
