"""`fit_group` against `fit`: exact steps, steps of fixed shapes, fused kernels."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from by_bytes import CLASSES, DIM, make_rows
from own_process import python

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.federation.client import TrainingSet
from federatedscope_ggeur.federation.exchanges.training.batched.fit import (
    Member,
    fit_group,
    groups,
)
from federatedscope_ggeur.methods import BatchedHooks, LinearCorrection, LocalHooks
from federatedscope_ggeur.models import (
    ModelSettings,
    build_model,
    num_trainable,
    to_vector,
)

SGD = OptimizerSettings("SGD", 0.1, {"momentum": 0.9, "weight_decay": 1e-2})
EPOCHS = TrainingSettings(SGD, 3, "epoch", 8)
SIZES = (37, 20, 9, 0)


def head(**settings):
    model = build_model(DIM, CLASSES, ModelSettings(**settings))
    return model.reset(torch.Generator().manual_seed(1))


def members(settings=EPOCHS, sizes=SIZES):
    return [
        Member(TrainingSet(*make_rows(n, seed=k)), settings, seed=k)
        for k, n in enumerate(sizes)
    ]


def alone(model, member, hooks=None):
    """The weights that `fit` gives."""
    rows = member.rows
    found = fit(
        model,
        to_vector(head()) if hooks is None else to_vector(model),
        rows.features,
        rows.labels,
        member.settings,
        member.seed,
        hooks,
        rows.order,
    )
    return found.params


@pytest.mark.parametrize("exact", [True, False])
def test_rates_and_momenta_may_differ_by_client(exact):
    group = [
        m._replace(settings=replace(EPOCHS, optimizer=own))
        for m, own in zip(
            members(),
            (
                OptimizerSettings("SGD", rate, {"momentum": m, "weight_decay": 1e-2})
                for rate, m in ((0.1, 0.9), (0.01, 0.0), (0.3, 0.5), (0.1, 0.9))
            ),
        )
    ]
    assert groups(group) == [[0, 1, 2, 3]]
    model = head()
    found = fit_group(model, to_vector(model), group, exact=exact)
    for result, member in zip(found, group):
        torch.testing.assert_close(result.params, alone(head(), member))


def test_members_with_other_settings_stand_apart_the_longest_first():
    adam = replace(EPOCHS, optimizer=OptimizerSettings("Adam", 0.1))
    slow = replace(EPOCHS, optimizer=OptimizerSettings("Adam", 0.01))
    held = [*members(sizes=(9, 37)), *members(adam, (9, 37)), *members(slow, (9,))]
    assert sorted(map(sorted, groups(held))) == [[0, 1], [2, 3], [4]]
    assert [1, 0] in groups(held)


@pytest.mark.parametrize("exact", [True, False])
def test_rows_of_another_client_move_nobody(exact):
    group = members()
    group[1].rows.features[:] = float("nan")
    model = head()
    found = fit_group(model, to_vector(model), group, exact=exact)
    assert found[1].params.isnan().any()
    for k in (0, 2, 3):
        torch.testing.assert_close(found[k].params, alone(head(), group[k]))


def corrected(group, constants, alpha, **how):
    model = head()
    hooks = BatchedHooks(add_correction=LinearCorrection(constants.clone(), alpha))
    return fit_group(model, to_vector(model), group, hooks, **how)


def test_fixed_steps_serve_another_round():
    """The second round has the shapes of the first, and other numbers."""
    model, sizes = head(), (37, 20)
    for seed in (1, 2):
        rows = make_rows(sum(sizes), seed=seed)
        parts = [TrainingSet(*p) for p in zip(*(t.split(sizes) for t in rows))]
        group = [Member(own, EPOCHS, seed=7 + k) for k, own in enumerate(parts)]
        constants = torch.full((2, num_trainable(model)), 0.1 * seed)
        hooks = BatchedHooks(add_correction=LinearCorrection(constants, 0.2))
        found = fit_group(model, to_vector(head()), group, hooks, exact=False)
        for result, member in zip(found, group):
            one = LocalHooks(add_correction=LinearCorrection(constants[0], 0.2))
            torch.testing.assert_close(result.params, alone(head(), member, one))


def test_rows_by_number():
    group = members()
    order = torch.randperm(37, generator=torch.Generator().manual_seed(3))[:30]
    rows = group[0].rows
    group[0] = group[0]._replace(rows=TrainingSet(rows.features, rows.labels, order))
    model = head()
    (found, *_) = fit_group(model, to_vector(model), group)
    torch.testing.assert_close(found.params, alone(head(), group[0]))


def test_a_model_without_a_batched_form_is_refused():
    model = build_model(DIM, CLASSES, ModelSettings())
    model.__class__ = type("Other", (type(model),), {})
    with pytest.raises(ConfigError, match="Other has no batched form"):
        fit_group(model, to_vector(model), members())


FUSED = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch
from test_batched_fit import EPOCHS, alone, corrected, head, members
from federatedscope_ggeur.federation.exchanges.training.batched import graphs
from federatedscope_ggeur.methods import LinearCorrection, LocalHooks
from federatedscope_ggeur.models import num_trainable

assert graphs.fused_kernels(torch.device("cpu")) is not None
constants = torch.randn(4, num_trainable(head()))
for result, member, own in zip(
    corrected(members(), constants, 0.3, exact=False), members(), constants
):
    hooks = LocalHooks(add_correction=LinearCorrection(own, 0.3))
    torch.testing.assert_close(result.params, alone(head(), member, hooks))
"""


@pytest.mark.slow
def test_fused_kernels_take_the_same_steps():
    """Triton's interpreter runs them on the CPU, in a process that chose it first."""
    pytest.importorskip("triton")
    found = python("-c", FUSED, path=":".join(sys.path))
    assert found.returncode == 0, found.stderr
