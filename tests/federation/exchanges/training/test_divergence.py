"""When training counts as diverged, and what is said then."""

import json
import logging
import math

import pytest
import torch
from by_bytes import Federation, make_client_data
from every_method import words
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.errors import DataError, GGEURError
from federatedscope_ggeur.federation.exchanges.training.screening import (
    BOUND,
    GROWTH,
    DivergenceWatch,
    not_finite,
    remedy,
)
from federatedscope_ggeur.methods import METHODS, build_method
from federatedscope_ggeur.methods.fedavg import FedAvg
from federatedscope_ggeur.methods.fedproto import FedProto
from federatedscope_ggeur.methods.scaffold import Scaffold

CLASSES = 4
GUESSING = math.log(CLASSES)
SMALL = torch.tensor([0.5, -1.0])


def watch(*losses, start=None, params=SMALL, **weights):
    """A watch after rounds of these losses."""
    one = DivergenceWatch(CLASSES, FedAvg(), 0.5)
    one.begin(params, start)
    for number, loss in enumerate(losses, 1):
        look(one, number, loss, **weights)
    return one


def look(one, number, loss, params=SMALL, weights=None, losses=None):
    weights = {1: 1.0, 2: 2.0} if weights is None else weights
    one.look(number, loss, params, weights, losses or {})


def test_a_loss_that_has_grown_tenfold_is_named():
    one = watch(1.2, 1.4, 20.0)
    found = one.signs
    assert (found.round, found.client, found.rate) == (3, 2, 0.5)
    assert (found.loss, found.first_loss, found.largest_weight) == (20.0, 1.2, 2.0)


def test_it_is_judged_by_the_last_evaluated_round():
    assert watch(1.2, 20.0, 1.3).signs is None
    one = watch(1.2, 20.0, 30.0, 25.0)
    assert (one.signs.round, one.signs.loss) == (2, 20.0)


@given(first=st.floats(0, 1e-3), last=st.floats(0, GUESSING))
def test_better_than_guessing_is_no_divergence(first, last):
    """After a closed form the first loss may be zero, and ten times that is zero."""
    assert watch(first, last, start=first).signs is None


@given(losses=st.lists(st.floats(0.5 * GUESSING, 5 * GUESSING), min_size=1))
def test_losses_that_stay_near_each_other_are_none_either(losses):
    assert watch(*losses).signs is None


def test_a_loss_far_off_from_the_first_round_on_is_named():
    assert watch(1.1 * BOUND * GUESSING).signs.round == 1
    assert watch(0.9 * BOUND * GUESSING).signs is None


def test_a_head_in_closed_form_may_begin_with_a_large_loss_and_large_weights():
    large = torch.tensor([-1e6, 3.0])
    assert watch(5000.0, 4000.0, start=5000.0).signs is None
    assert watch(5000.0).signs is not None
    start = watch(5.0, 4.0, params=large, weights={1: 2e6, 2: 1.0})
    assert start.signs is None
    look(start, 3, 4.0, weights={1: 1.0, 2: 1.1e6 * BOUND})
    assert start.signs.client == 2


@pytest.mark.parametrize("loss", [2.0, None])
def test_weights_beyond_the_bound_are_named_even_without_test_rows(loss):
    one = watch(loss, weights={3: 0.5 * BOUND, 7: 0.9 * BOUND})
    assert one.signs is None
    look(one, 2, loss, weights={3: 2 * BOUND, 7: 1.5 * BOUND})
    assert (one.signs.client, one.signs.largest_weight) == (3, 2 * BOUND)


def test_the_server_s_own_step_is_told_apart():
    far = torch.tensor([0.0, -1.5 * GROWTH * BOUND])
    one = watch()
    look(one, 1, 50.0, params=far, weights={1: BOUND, 2: 3.0})
    assert one.signs.client is None
    assert one.signs.largest_weight == 1.5 * GROWTH * BOUND


def test_where_weights_stay_with_the_clients_it_is_the_largest_loss():
    one = DivergenceWatch(CLASSES, METHODS["local"](), 0.5)
    one.begin(SMALL)
    look(one, 1, 1.0, weights={1: 0.0, 2: 0.0})
    losses = {1: 90.0, 2: 3.0}
    look(one, 2, 46.5, weights={1: 0.0, 2: 0.0}, losses=losses)
    assert (one.signs.client, one.signs.largest_weight) == (1, None)


def test_it_is_said_once_with_client_round_and_rate(caplog):
    with caplog.at_level(logging.WARNING):
        watch(1.2, 20.0, 1.3, 20.0, 40.0)
    (line,) = caplog.messages
    assert "diverged in round 2 (client 2, " in line
    assert "lr 0.5)" in line
    assert "loss 20, 1.2 at first; largest weight 2" in line
    assert "lower train.optimizer.lr or set grad.grad_clip" in line


@given(
    losses=st.lists(st.floats(0.1, 1e5), min_size=1, max_size=8), at=st.integers(0, 8)
)
def test_a_restored_watch_sees_what_one_that_was_not_stopped_sees(losses, at):
    whole, first = watch(*losses, start=7.0), watch(*losses[:at], start=7.0)
    state = json.loads(json.dumps(first.state()))
    second = DivergenceWatch(CLASSES, FedAvg(), 0.5)
    second.load(state)
    assert second.state() == first.state()
    for number, loss in enumerate(losses[at:], at + 1):
        look(second, number, loss)
    assert second.signs == whole.signs


def test_a_changed_state_is_refused():
    state = watch(1.0, 50.0).state()
    for change in ({"start_loss": "7"}, {"found": {"round": 1}}, {"first_loss": []}):
        with pytest.raises(DataError):
            watch().load({**state, **change})
    with pytest.raises(KeyError):
        watch().load({})


def test_each_method_names_the_settings_to_lower():
    said = {name: remedy(METHODS[name](), 0.1) for name in METHODS}
    assert said["fedavg"] == "lower train.optimizer.lr (now 0.1) or set grad.grad_clip"
    for name, key in (
        ("fedproto", "strength"),
        ("scaffold", "server_lr"),
        ("fedopt", "lr"),
        ("fedavgm", "lr"),
        ("fedprox", "mu"),
    ):
        assert f"{name}.{key}" in said[name] or f"{name}.optimizer.{key}" in said[name]
        assert hasattr(METHODS[name](), key)
    both = build_method("scaffold", "fedmix")
    assert remedy(both) == remedy(Scaffold())


def test_what_is_not_finite_is_named():
    fine, bad = torch.ones(2), torch.tensor([1.0, math.inf])
    assert not_finite(fine, {"c": fine, "round": torch.tensor([3])}) == ""
    assert not_finite(bad, {"c": bad}) == "the weights contain NaN or infinity"
    assert not_finite(fine, {"c": fine, "d": bad}) == "'d' contains NaN or infinity"


def test_prototypes_that_overflow_are_refused_by_the_client_itself():
    federation = Federation(make_client_data((20, 30)), FedProto()).round0()
    federation.server.params = torch.full_like(federation.server.params, 1e16)
    message = r"client 1, round 1: .*'means' must lie within.*fedproto\.strength"
    with pytest.raises(GGEURError, match=message):
        federation.train(1)


def test_a_server_step_that_overflows_says_so():
    federation = Federation(make_client_data((20, 30)), Scaffold(1e38)).round0()
    server = federation.server
    message = r"round 1: after the server's step .*NaN or infinity.*scaffold\.server_lr"
    updates = federation.train(1)
    far = torch.full_like(server.params, 1e20)
    with pytest.raises(GGEURError, match=message):
        federation.step(1, [update.__class__(u, 1, far, 1, update.upload)
                            for u, update in enumerate(updates, 1)])  # fmt: skip


# Runs that diverge and stay finite, on the embedded engine.
#
# What is found, and when, is said by
# tests/federation/exchanges/training/test_divergence.py.


def test_a_rate_far_too_high_is_named_in_the_results(config):
    found = run(config("train.optimizer.lr", 10_000)).diverged
    assert (found.round, found.rate) == (1, 10_000)
    assert found.client in (1, 2, 3)
    assert found.largest_weight > 1000


@pytest.mark.parametrize(
    "settings",
    [
        words("moon"),
        words("fedopt"),
        ["ggeur.closed_form", "lda", "ggeur.init", "closed_form"],
        ["ggeur.calibrate", "ccvr"],
        ["train.optimizer.lr", 1],
        ["eval.freq", 2],
    ],
    ids=str,
)
def test_healthy_runs_raise_no_alarm(config, settings):
    assert run(config(*settings)).diverged is None
