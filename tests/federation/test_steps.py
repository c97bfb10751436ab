"""Steps: a plugin's are taken on both sides where it is named, and nowhere else."""

import math
from dataclasses import replace

import pytest
import torch
from by_bytes import Federation, make_client_data

from federatedscope_ggeur import register_step, run
from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.errors import PluginError
from federatedscope_ggeur.federation.exchanges.statistics import (
    StatisticsExchange,
    Threshold,
)
from federatedscope_ggeur.federation.exchanges.statistics.exchange import (
    StatisticsClient,
)
from federatedscope_ggeur.federation.steps import STEPS, Step, steps_of
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
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


def test_all_processes_must_name_the_step(config, contents):
    agreed = agreed_settings(config(*NAMED))
    assert agreed["ggeur.plugins (steps)"] == "larger"
    assert "ggeur.plugins (steps)" not in agreed_settings(config())


def test_it_is_refused_where_no_client_sends_statistics(config, contents):
    run = replace(demands_of(config(*LDA, *NAMED)), brings_totals=True)
    ((field, problem),) = StatisticsExchange.objections(run)
    assert field == "plugins"
    assert "the step 'larger'" in problem


def plain_step(module, name, leave=None):
    """A registered step of a plugin `module` without settings."""
    own = {"__module__": module, "of": classmethod(lambda cls, run: cls())}
    own["leave"] = leave or (lambda self, statistics: statistics)
    return register_step(name)(type(name, (Step,), own))


def test_steps_of_plugins_stand_in_the_order_of_the_plugins(config, contents):
    for name in ("first", "second"):
        plain_step(f"module_{name}", name)
    run = demands_of(config())
    for order in (("first", "second"), ("second", "first")):
        named = replace(run, plugins=tuple(f"module_{name}" for name in order))
        names = [step.name for step in steps_of(named)]
        assert names == ["threshold", *order]


@pytest.mark.parametrize(
    ("leave", "problem"),
    [
        (lambda self, statistics: None, "must return a Statistics"),
        (lambda self, statistics: statistics.restrict([0]), "must keep the counts"),
        (
            lambda self, s: s.with_means(s.means[:, :3]),
            "must keep the shape .* of means",
        ),
        (lambda self, s: s.with_means(s.means * math.nan), "returned means with NaN"),
    ],
)
def test_what_a_step_returns_is_checked(contents, leave, problem):
    step = plain_step("module_wrong", "wrong", leave)()
    federation = Federation(make_client_data(), statistics=StatisticsForm())
    client = federation.side(1, StatisticsClient)
    held = client.statistics().statistics
    with pytest.raises(PluginError, match=rf"leave of the step 'wrong'.*{problem}"):
        StatisticsForm(steps=(step,)).leave(held)


def test_nothing_leaves_without_the_threshold_of_the_client():
    federation = Federation(make_client_data(), min_samples=2)
    side = federation.side(1, StatisticsClient)
    assert side.statistics().statistics.classes
    for steps in ((), (Threshold(1),)):
        task = replace(federation.settings.task, statistics=StatisticsForm(steps=steps))
        side.client.settings = replace(federation.settings, task=task)
        with pytest.raises(ValueError, match=r"must be Threshold\(2\)"):
            side.statistics()


def test_what_cannot_be_registered():
    with pytest.raises(TypeError, match="must be a subclass of Step"):
        register_step("mine")(object)
    mine = type("Mine", (Threshold,), {"SETTINGS": type("Own", (Section,), {})})
    with pytest.raises(TypeError, match=r"'mine' must have PREFIX = 'mine\.'"):
        register_step("mine")(mine)
    unmade = {"__module__": "elsewhere", "leave": lambda self, statistics: statistics}
    with pytest.raises(TypeError, match="'mine' must define of"):
        register_step("mine")(type("Mine", (Step,), unmade))
    with pytest.raises(TypeError, match="'mine' must leave scatters of single classes"):
        register_step("mine")(type("Mine", (Threshold,), {"BY_CLASS": False}))
    with pytest.raises(ValueError, match="'compress' is already registered"):
        register_step("compress")(Threshold)
