"""`fit_group` against `fit`: exact steps, steps of fixed shapes, fused kernels."""

import sys
from dataclasses import replace

import pytest
import torch
from by_bytes import CLASSES, DIM, SGD, Federation, make_client_data, make_rows
from every_method import ADDED, FEDERATED
from examples import examples
from federations import LOCAL, MODELS, OPTIMIZERS
from hypothesis import assume, given
from hypothesis import strategies as st
from own_process import python

from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.federation.client import TrainingSet
from federatedscope_ggeur.federation.exchanges.training.batched.fit import (
    Member,
    fit_group,
    groups,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import (
    RoundSettings,
    TrainingClient,
    train_group,
)
from federatedscope_ggeur.methods import (
    METHODS,
    BatchedHooks,
    FedAvg,
    LinearCorrection,
    LocalHooks,
    build_method,
)
from federatedscope_ggeur.models import (
    CPU,
    ModelSettings,
    build_model,
    load_vector,
    num_trainable,
    to_vector,
)

EPOCHS = replace(LOCAL, local_update_steps=3)
SIZES = (37, 20, 9, 0)


def head():
    model = build_model(DIM, CLASSES, ModelSettings())
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
        to_vector(model),
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
    group = members()
    for k, (rate, momentum) in enumerate(
        ((0.1, 0.9), (0.01, 0.0), (0.3, 0.5), (0.1, 0.9))
    ):
        options = {"momentum": momentum, "weight_decay": 1e-2}
        own = replace(EPOCHS, optimizer=OptimizerSettings("SGD", rate, options))
        group[k] = group[k]._replace(settings=own)
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


def test_offsets_beside_the_rows_move_clients_as_alone():
    model, group = build_model(DIM, CLASSES, MODELS["mlp"]), members()
    model.reset(torch.Generator().manual_seed(1))
    plain = fit_group(model, to_vector(model), group)
    for k, (features, labels, _) in enumerate(member.rows for member in group):
        rows = torch.cat([features, torch.randn(len(labels), CLASSES)], dim=1)
        group[k] = group[k]._replace(rows=TrainingSet(rows, labels))
    start = to_vector(model)
    for k, result in enumerate(fit_group(model, start, group)):
        load_vector(model, start)
        torch.testing.assert_close(result.params, alone(model, group[k]))
        moved = not torch.allclose(result.params, plain[k].params)
        assert moved == bool(SIZES[k])


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


def test_each_round_has_its_own_loss_term():
    group, model = members(sizes=(37, 20)), head()
    for weight in (0.0, 1.0):
        hooks = BatchedHooks(
            loss_term=lambda heads, batch, by=weight: (
                by * batch.mean(batch.logits.square().sum(dim=2))
            )
        )
        found = fit_group(model, to_vector(head()), group, hooks, exact=False)
    one = LocalHooks(
        loss_term=lambda model, batch: batch.logits.square().sum(dim=1).mean()
    )
    for result, member in zip(found, group):
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
from federatedscope_ggeur.federation.exchanges.training.batched import fit
from federatedscope_ggeur.methods import LinearCorrection, LocalHooks
from federatedscope_ggeur.models import num_trainable

assert fit.fused_kernels(torch.device("cpu")) is not None
constants = torch.randn(4, num_trainable(head()))
for result, member, own in zip(
    corrected(members(), constants, 0.3, exact=False), members(), constants
):
    hooks = LocalHooks(add_correction=LinearCorrection(own, 0.3))
    torch.testing.assert_close(result.params, alone(head(), member, hooks))
"""


@pytest.mark.slow
def test_the_package_needs_no_triton():
    """It is there on Linux alone, and takes time to import."""
    lines = ["import sys", "sys.modules['triton'] = None"]
    lines += ["import federatedscope_ggeur.engines.embedded"]
    done = python("-c", "; ".join(lines))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_fused_kernels_take_the_same_steps():
    """Triton's interpreter runs them on the CPU, in a process that chose it first."""
    pytest.importorskip("triton")
    found = python("-c", FUSED, path=":".join(sys.path))
    assert found.returncode == 0, found.stderr


# Clients that train at once send what they send one after the other.
#
# For each client the norm of the difference is at most 1e-5 of the norm.


#: Methods of extras, too, which a head without norms makes FedAvg.
OTHERS = ("local", *(name for name in METHODS if METHODS.is_expected(name)))
ALL = {**FEDERATED, **{name: METHODS[name]() for name in OTHERS}}
BATCHED = {name: method for name, method in ALL.items() if method.batched}
CLIENT_SIZES = (20, 33, 1, 8, 0)


class Run(Federation):
    """A federation whose clients train one by one ("never") or at once ("always")."""

    def __init__(self, held, method, batched, **options):
        super().__init__(held, method, **options)
        own = replace(self.settings.of(RoundSettings), batched=batched)
        for client in self.clients.values():
            client.settings = client.settings.with_own(own)

    def updates(self, number):
        """The updates of a round, by client."""
        broadcast = self.send(self.broadcast(number))
        sides = [self.side(k, TrainingClient) for k in self.sample(number)]
        sent = train_group(sides, [(broadcast,)] * len(sides))
        if sent is None:
            sent = [side.train(broadcast) for side in sides]
        return {update.client: update for update in sent}

    def rounds(self, number):
        """The updates of each of so many rounds."""
        self.round0()
        for r in range(1, number + 1):
            updates = self.updates(r)
            yield updates
            self.step(r, updates.values())


def assert_agree(method, rounds=3, held=None, device=CPU, training=SGD, **options):
    """Three rounds on the CPU one by one, and at once on the device."""
    one, other = (
        Run(
            held or make_client_data(CLIENT_SIZES),
            method,
            batched,
            training=own,
            **options,
        )
        for batched, own in (
            ("never", training),
            ("always", replace(training, device=device)),
        )
    )
    for alone, at_once in zip(one.rounds(rounds), other.rounds(rounds)):
        assert alone.keys() == at_once.keys()
        for k, update in alone.items():
            assert update.steps == at_once[k].steps
            assert_near(at_once[k].params, update.params)
            assert update.upload.keys() == at_once[k].upload.keys()
            for name, tensor in update.upload.items():
                assert_near(at_once[k].upload[name], tensor)


def assert_near(ours, theirs):
    difference = float((ours - theirs).double().norm())
    assert difference <= 1e-5 * max(float(theirs.double().norm()), 1e-2)


def test_which_methods_have_a_batched_form():
    assert {"fedavg", "fedavgm", "fedopt", "fedprox", "scaffold", "feddyn"} <= set(
        BATCHED
    )
    assert {"fedsam", "moon", "fedntd", "fedproto", "local"} <= set(BATCHED)


@pytest.mark.parametrize("model", ["mlp", "linear"])
@pytest.mark.parametrize("name", BATCHED)
def test_every_batched_method_agrees(name, model):
    assert_agree(BATCHED[name], 2, model=MODELS[model], training=LOCAL)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("batch", [8, 20])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", BATCHED)
def test_graphs_on_a_gpu_take_the_steps_of_the_cpu(name, model, batch):
    training = replace(LOCAL, batch_size=batch, local_update_steps=15)
    device = torch.device("cuda", 0)
    assert_agree(BATCHED[name], model=MODELS[model], training=training, device=device)


@pytest.mark.parametrize("name", BATCHED)
def test_every_batched_method_agrees_with_another_optimizer(name):
    chosen = OPTIMIZERS["amsgrad"]
    if not list(BATCHED[name].optimizer_problems(chosen)):
        training = replace(LOCAL, optimizer=chosen)
        assert_agree(BATCHED[name], 2, model=MODELS["mlp"], training=training)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_agrees(optimizer):
    training = replace(LOCAL, optimizer=OPTIMIZERS[optimizer])
    assert_agree(FedAvg(), 2, model=MODELS["mlp"], training=training)


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(any),
    batch=st.integers(1, 41),
    epochs=st.integers(1, 3),
    by_batches=st.booleans(),
    drop_last=st.booleans(),
    clip=st.sampled_from([-1.0, 0.5]),
)
@examples(20)
def test_sizes_batches_and_epochs(sizes, batch, epochs, by_batches, drop_last, clip):
    assume(not drop_last or max(sizes) >= batch)
    kind = "batch" if by_batches else "epoch"
    training = TrainingSettings(
        OPTIMIZERS["momentum"], epochs, kind, batch, drop_last=drop_last, grad_clip=clip
    )
    assert_agree(FedAvg(), 1, make_client_data(sizes), training=training)


@pytest.mark.parametrize("memory", [1e9, 5000, 0])
@pytest.mark.parametrize("noise", ["fixed", "fresh"])
def test_augmented_sets_that_are_kept_drawn_anew_or_too_many(noise, memory):
    assert_agree(FedAvg(), 2, noise=noise, memory=memory, steps=(1, 2))


def test_some_clients_are_drawn_and_rows_have_no_order():
    training = replace(LOCAL, shuffle=False)
    assert_agree(FedAvg(), sample_client_num=2, training=training)


def test_a_client_that_diverges_is_named():
    held = make_client_data((12, 30, 20))
    held[2][1][4, 2] = float("nan")  # readers refuse such rows
    run = Run(held, FedAvg(), "always", training=LOCAL)
    run.round0()
    with pytest.raises(GGEURError, match=r"^client 2, round 1: .* NaN"):
        run.updates(1)


def test_what_has_no_batched_form_trains_one_by_one():
    name = next(iter(ADDED))
    run = Run(make_client_data(CLIENT_SIZES), build_method("fedavg", name), "always")
    run.round0()
    broadcast = run.send(run.broadcast(1))
    side = run.side(1, TrainingClient)
    assert train_group([side], [(broadcast,)]) is None


def test_a_method_with_hooks_of_its_own_says_so_again():
    class Nudged(METHODS["fedprox"]):
        def local(self, context):
            return super().local(context)

    class Averaged(METHODS["fedprox"]):
        def step(self, params, updates, state, context):
            return params, state

    assert not Nudged.batched
    assert Averaged.batched
