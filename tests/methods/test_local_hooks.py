"""Each of `LocalHooks` does to training what it says."""

import logging

import pytest
import torch
from carrier import carrier, lost
from federations import LOCAL, OPTIMIZERS, PLAIN_MODELS, federate, train_plainly
from torch.nn import functional as F

from federatedscope_ggeur.federation import TrainingSettings, fit
from federatedscope_ggeur.federation.course.checkpoint import client_path
from federatedscope_ggeur.methods import FedDyn, LocalHooks, Scaffold
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector
from federatedscope_ggeur.reporting.run_files import CHECKPOINT_FILE

DIM, CLASSES, ROWS = 6, 4, 30


@pytest.fixture(params=PLAIN_MODELS)
def model(request):
    model = build_model(DIM, CLASSES, PLAIN_MODELS[request.param])
    return model.reset(torch.Generator().manual_seed(1))


@pytest.fixture(params=["momentum", "adam"])
def settings(request):
    return TrainingSettings(OPTIMIZERS[request.param], 2, "epoch", 10, shuffle=False)


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (ROWS,), generator=generator)
    return torch.randn(ROWS, DIM, generator=generator), labels


def plainly(model, rows, settings, loss_of, clip=0.0):
    """Plain training on `loss_of`, a function of (model, x, y), as `settings` say."""
    epoch = [*zip(*(part.split(settings.batch_size) for part in rows))]
    batches, start = epoch * settings.local_update_steps, to_vector(model)
    return train_plainly(model, start, batches, settings.optimizer, loss_of, clip)


def check(model, rows, settings, hooks, loss_of):
    """Training with `hooks` is plain training on `loss_of`, not on cross-entropy."""
    start = to_vector(model)
    plain = plainly(model, rows, settings, loss_of)
    ordinary = fit(model, start, *rows, settings, 0).params.clone()
    result = fit(model, start, *rows, settings, 0, hooks).params
    torch.testing.assert_close(result, plain, rtol=1e-4, atol=1e-5)
    assert (result - ordinary).abs().max() > 1e-3


def entropy(logits):
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()


def test_loss_term_is_added(model, rows, settings):
    hooks = LocalHooks(
        loss_term=lambda model, batch: (
            0.5 * batch.representation.square().mean() + entropy(batch.logits)
        )
    )

    def loss_of(model, x, y):
        z = model.represent(x)
        logits = model.classify(z)
        return F.cross_entropy(logits, y) + 0.5 * z.square().mean() + entropy(logits)

    check(model, rows, settings, hooks, loss_of)


def test_objective_and_loss_term_and_transform_go_together(model, rows, settings):
    hooks = LocalHooks(
        transform=lambda x, y: -x,
        objective=lambda model, x, y: F.multi_margin_loss(model(x), y),
        loss_term=lambda model, batch: entropy(batch.logits),
    )

    def loss_of(model, x, y):
        return F.multi_margin_loss(model(-x), y) + entropy(model(-x))

    check(model, rows, settings, hooks, loss_of)


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_correction_joins_the_gradient_before_clipping(model, rows, settings, clip):
    start = to_vector(model)
    anchor = torch.randn(len(start), generator=torch.Generator().manual_seed(7))

    def add_correction(params, gradient):
        gradient.add_(params - anchor, alpha=0.3)

    def loss_of(model, x, y):
        params = torch.cat([p.flatten() for p in model.parameters()])
        return F.cross_entropy(model(x), y) + 0.15 * (params - anchor).square().sum()

    settings = TrainingSettings(
        settings.optimizer, 2, "epoch", 10, shuffle=False, grad_clip=clip
    )
    plain = plainly(model, rows, settings, loss_of, clip)
    hooks = LocalHooks(add_correction=add_correction)
    result = fit(model, start, *rows, settings, 0, hooks).params
    torch.testing.assert_close(result, plain, rtol=1e-4, atol=1e-5)


def test_a_batch_holds_what_the_head_made_of_it(model, rows, settings):
    seen = []

    def look(model, batch):
        seen.append(batch)
        assert torch.equal(batch.representation, model.represent(batch.features))
        assert torch.equal(batch.logits, model(batch.features))
        return batch.logits.sum() * 0

    fit(model, to_vector(model), *rows, settings, 0, LocalHooks(loss_term=look))
    assert len(seen) == 6
    assert torch.equal(seen[0].features, rows[0][:10])
    assert torch.equal(seen[0].labels, rows[1][:10])


NO_TERM = LocalHooks(loss_term=lambda model, batch: torch.zeros(()))
SAME = LocalHooks(objective=lambda model, x, y: F.cross_entropy(model(x), y))
DROPPED = ModelSettings(hidden=8, dropout=0.5)


@pytest.mark.parametrize(
    ("hooks", "how"), [(NO_TERM, ModelSettings()), (NO_TERM, DROPPED), (SAME, DROPPED)]
)
def test_no_gradient_more_and_the_same_objective_change_nothing(
    hooks, how, rows, settings
):
    model = build_model(DIM, CLASSES, how)
    start = to_vector(model)
    plain = fit(model, start, *rows, settings, 0).params.clone()
    assert torch.equal(fit(model, start, *rows, settings, 0, hooks).params, plain)


def test_tensors_that_hooks_keep_can_be_used_with_autograd_later(model, rows, settings):
    kept = []

    def transform(features, labels):
        kept.append(features.mean(dim=0))
        return features

    def add_correction(params, gradient):
        kept.append(params * 1.0)

    hooks = LocalHooks(transform=transform, add_correction=add_correction)
    fit(model, to_vector(model), *rows, settings, 0, hooks)
    for tensor in kept:
        weight = torch.ones_like(tensor, requires_grad=True)
        (weight * tensor).sum().backward()
        tensor.add_(1.0)


# States on clients when updates are lost, or states themselves.


METHODS = {"c": Scaffold(0.5), "h": FedDyn(0.5)}


@pytest.mark.parametrize(("name", "method"), METHODS.items(), ids=METHODS)
class TestAcknowledgedRounds:
    @pytest.fixture
    def federation(self, method):
        return federate(method, rounds=0)

    def lose(self, federation, number, *clients):
        """A round whose updates of these clients do not arrive."""
        updates = federation.train(number)
        arrived = [u for u in updates if u.client not in clients]
        federation.step(number, arrived)

    def check_sum(self, federation, name):
        """The server has the weighted mean of what the clients go on from."""
        sizes = {k: len(client.labels) for k, client in federation.clients.items()}
        state, mean = federation.server.method_state, 0.0
        for k, client in federation.clients.items():
            taken = state["acknowledged_rounds"][k] == client.state["round"]
            share = sizes[k] / sum(sizes.values())
            mean = mean + share * client.state["after" if taken else "before"]
        torch.testing.assert_close(state[name], mean, rtol=1e-4, atol=1e-6)

    def test_the_sum_holds_when_updates_are_lost(self, federation, name):
        for number, clients in enumerate([(2,), (), (1, 2), (2,), (3,)], start=1):
            self.lose(federation, number, *clients)
            self.check_sum(federation, name)
        acknowledged = federation.server.method_state["acknowledged_rounds"]
        assert acknowledged.tolist() == [0, 5, 5, 4]

    def test_the_sum_holds_when_a_client_joins_late(self, method, name):
        carried = carrier(method, 2, (20, 30, 25), steps=(), training=LOCAL)
        carried.faults["prepare", 0, 3] = lost
        carried.round0()
        federation = carried.federation
        federation.training.sample = lambda _: [1, 2]
        self.lose(federation, 1)
        del federation.training.sample
        carried.faults.clear()
        carried.membership.come_back(3)
        carried.carry(carried.coordinator.welcome_back())
        for number in (2, 3):
            self.lose(federation, number)
            self.check_sum(federation, name)

    def test_a_lost_round_leaves_no_trace(self, federation, name):
        self.lose(federation, 1)
        self.lose(federation, 2, 2)
        before = federation.clients[2].state["before"]
        self.lose(federation, 3, 2)
        assert torch.equal(federation.clients[2].state["before"], before)
        assert before.abs().max() > 0

    def test_a_client_that_lost_its_state_says_so(self, federation, name, caplog):
        self.lose(federation, 1)
        federation.clients[2].states = {}
        with caplog.at_level(logging.WARNING):
            federation.train(2)
        assert "client 2 has lost its state of round 1" in caplog.text
        assert f"{client_path('FILE', 2)}: FILE is {CHECKPOINT_FILE}" in caplog.text
        assert "client 1" not in caplog.text
