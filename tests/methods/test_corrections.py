"""Methods that correct what clients' training drifts to: numbers by numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_bytes import Federation, make_client_data
from by_numpy import MOMENTUM, RATE, World, log_softmax, sgd, train_all
from federations import (
    FEW_WORLDS,
    WORLDS,
    check,
    check_server_mean,
    federate,
    federate_tiny,
)

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.methods import (
    FedAvg,
    FedDyn,
    FedNTD,
    FedProx,
    FedSAM,
    LocalContext,
    Moon,
    Scaffold,
)
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector

# SCAFFOLD: numbers by numpy, control variates that add up, and plain SGD.


SERVER_LR = 0.25


def oracle(world):
    """Weights after each round: the gradient is g - c_k + c, as if the loss had
    <c - c_k, w> added; c_k' = c_k - c + (w_g - w_k) / (eta tau_m)."""
    w, after = world.start, []
    c, own = np.zeros_like(w), {}
    for clients in world.drawn:
        trained, change = {}, {}
        for k in clients:
            before = own.get(k, np.zeros_like(w))

            def loss(v, x, y, slope=c - before):
                return world.cross_entropy(v, x, y) + slope @ v

            trained[k], steps = sgd(loss, w, k)
            if steps == 0:
                continue
            # The steps that heavy-ball momentum makes of one gradient, added up.
            made = sum(1 - MOMENTUM**i for i in range(1, steps + 1)) / (1 - MOMENTUM)
            own[k] = before - c + (w - trained[k]) / (RATE * made)
            change[k] = own[k] - before
        c = c + sum(world.pi(k) * change[k] for k in change)
        w = w + SERVER_LR * (world.mean(w, clients, trained) - w)
        after.append(w)
    return after


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(Scaffold(SERVER_LR), oracle, world)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_client_with_server_rate_1_is_plain_sgd(momentum):
    options = {"momentum": momentum, "weight_decay": 1e-3}
    training = TrainingSettings(OptimizerSettings("SGD", 0.05, options), 2, "epoch", 8)
    plain = federate(FedAvg(), sizes=(30,), training=training).weights
    weights = federate(Scaffold(1.0), sizes=(30,), training=training).weights
    torch.testing.assert_close(weights, plain, rtol=0, atol=5e-6)


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("drawn", [2, 4])
def test_the_servers_variate_is_the_mean_of_the_clients(drawn, equal):
    check_server_mean(Scaffold(0.5), "c", drawn, equal)


@pytest.mark.parametrize(
    "optimizer",
    [
        OptimizerSettings("Adam", 0.01),
        OptimizerSettings("SGD", 0.01, {"momentum": 0.9, "nesterov": True}),
        OptimizerSettings("SGD", 0.01, {"momentum": 0.9, "dampening": 0.1}),
    ],
)
def test_steps_that_cannot_be_counted_are_refused(optimizer):
    training = TrainingSettings(optimizer)
    with pytest.raises(ConfigError, match=r"the local optimiser's .* scaffold"):
        federate(Scaffold(), training=training)


# FedProx: numbers by numpy, and how far clients move.


MU = 0.7


def oracle_fedprox(world):
    """Weights after each round: clients minimise CE + mu/2 |w - w_g|^2."""
    w, after = world.start, []
    for clients in world.drawn:

        def loss(v, x, y, start=w):
            return world.cross_entropy(v, x, y) + MU / 2 * ((v - start) ** 2).sum()

        w = world.mean(w, clients, train_all(world, w, clients, loss))
        after.append(w)
    return after


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_the_weights_are_those_of_numpy_fedprox(world):
    check(FedProx(MU), oracle_fedprox, world)


# FedDyn: numbers by numpy, and gradients that add up.


ALPHA = 0.5


def oracle_feddyn(world):
    """Weights after each round: clients minimise CE - <h_k, w> + a/2 |w - w_g|^2."""
    w, after = world.start, []
    h, own = np.zeros_like(w), {}
    for clients in world.drawn:
        trained = {}
        for k in clients:
            before = own.get(k, np.zeros_like(w))

            def loss(v, x, y, start=w, h_k=before):
                near = ALPHA / 2 * ((v - start) ** 2).sum()
                return world.cross_entropy(v, x, y) - h_k @ v + near

            trained[k], _ = sgd(loss, w, k)
            own[k] = before - ALPHA * (trained[k] - w)
        h = h - ALPHA * sum(world.pi(k) * (trained[k] - w) for k in clients)
        w = world.mean(w, clients, trained) - h / ALPHA
        after.append(w)
    return after


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_the_weights_are_those_of_numpy_feddyn(world):
    check(FedDyn(ALPHA), oracle_feddyn, world, atol=1e-6)


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("drawn", [2, 4])
def test_the_servers_h_is_the_mean_of_the_clients(drawn, equal):
    check_server_mean(FedDyn(ALPHA), "h", drawn, equal)


# FedSAM: the perturbation by hand, a quadratic loss in closed form, identities.


DIM, CLASSES, SAM_RATE = 5, 3, 0.1


def context(model):
    return LocalContext(
        1, 1, model, to_vector(model), {}, {}, {}, torch.ones(CLASSES).long(), 1,
        OptimizerSettings(), 0,
    )  # fmt: skip


def made(hidden=0):
    model = build_model(DIM, CLASSES, ModelSettings(hidden))
    return model.reset(torch.Generator().manual_seed(0))


def perturbation(method, w, g, is_weight):
    """Sharpness-aware minimisation's, and the adaptive one's, as they are written."""
    if not method.adaptive:
        return method.rho * g / np.linalg.norm(g)
    t = np.where(is_weight, np.abs(w) + method.eta, 1.0)
    return method.rho * t**2 * g / np.linalg.norm(t * g)


@pytest.mark.parametrize("adaptive", [False, True])
class TestStep:
    def method(self, adaptive):
        return FedSAM(rho=0.3, eta=0.1, adaptive=adaptive)

    @pytest.mark.parametrize("hidden", [0, 4])
    def test_the_perturbation(self, adaptive, hidden):
        model, method = made(hidden), self.method(adaptive)
        w = to_vector(model)
        g = torch.randn(len(w), generator=torch.Generator().manual_seed(1))
        is_weight = np.concatenate(
            [np.full(p.numel(), p.dim() == 2) for p in model.parameters()]
        )
        found = method.local(context(model)).perturb(w, g).numpy()
        given = (part.double().numpy() for part in (w, g))
        wanted = perturbation(method, *given, is_weight)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
        if not adaptive:
            assert np.linalg.norm(found) == pytest.approx(0.3, rel=1e-5)

    def test_no_gradient_is_no_perturbation(self, adaptive):
        model = made()
        w = to_vector(model)
        found = self.method(adaptive).local(context(model)).perturb
        assert not found(w, torch.zeros_like(w)).any()

    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    @pytest.mark.parametrize("clip", [0.0, 0.5])
    def test_steps_on_a_quadratic_loss(self, adaptive, momentum, clip):
        """L = 1/2 w^T A w: the gradient at w + e is A (w + e)."""
        model, method = made(), self.method(adaptive)
        start = to_vector(model)
        curvature = torch.linspace(0.5, 2.0, len(start))
        sizes = [p.numel() for p in model.parameters()]

        def objective(model, features, labels):
            parts = zip(model.parameters(), curvature.split(sizes))
            return 0.5 * sum((a * p.flatten().square()).sum() for p, a in parts)

        hooks = replace(method.local(context(model)), objective=objective)
        optimizer = OptimizerSettings("SGD", SAM_RATE, {"momentum": momentum})
        settings = TrainingSettings(optimizer, 3, "batch", 4, grad_clip=clip or -1.0)
        rows = torch.zeros(4, DIM), torch.zeros(4, dtype=torch.int64)
        found = fit(model, start, *rows, settings, 0, hooks).params

        w, a = start.double().numpy(), curvature.double().numpy()
        is_weight, velocity = np.arange(len(w)) < sizes[0], 0.0
        for _ in range(3):
            g = a * (w + perturbation(method, w, a * w, is_weight))
            if clip:
                g = g * min(1.0, clip / np.linalg.norm(g))
            velocity = momentum * velocity + g
            w = w - SAM_RATE * velocity
        np.testing.assert_allclose(found.numpy(), w, rtol=1e-4, atol=1e-6)


# MOON: numbers by numpy, and whose last weights a client compares with.


MOON_MU, TEMPERATURE = 1.5, 0.5


def cosine(a, b):
    """0 where one of the two is the origin: the hidden units of a row can all be 0."""
    lengths = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return (a * b).sum(axis=1) / np.where(lengths > 0, lengths, 1)


def oracle_moon(world):
    """Weights after each round: CE + mu * mean of
    -log( e^{sim(z, z_g)/t} / (e^{sim(z, z_g)/t} + e^{sim(z, z_prev)/t}) )."""
    w, after, previous = world.start, [], {}
    for clients in world.drawn:

        def loss(v, x, y, w_g, w_prev):
            value = world.cross_entropy(v, x, y)
            if w_prev is None:
                return value
            z = world.represent(v, x)
            near, far = (
                np.exp(cosine(z, world.represent(other, x)) / TEMPERATURE)
                for other in (w_g, w_prev)
            )
            return value - MOON_MU * np.log(near / (near + far)).mean()

        trained = {}
        for k in clients:
            own = {"w_g": w, "w_prev": previous.get(k)}
            trained |= train_all(
                world, w, [k], lambda v, x, y, own=own: loss(v, x, y, **own)
            )
        previous |= trained
        w = world.mean(w, clients, trained)
        after.append(w)
    return after


@pytest.mark.slow
@pytest.mark.parametrize("world", FEW_WORLDS.values(), ids=FEW_WORLDS)
def test_the_weights_are_those_of_numpy_moon(world):
    check(Moon(MOON_MU, TEMPERATURE), oracle_moon, world)


def test_rows_whose_hidden_units_are_all_dead_do_no_harm():
    world = World(hidden=3)
    dead = torch.tensor(world.start).float()
    dead[18:21] = -100.0  # the hidden bias
    for mu in (0.0, 1.0):
        federation = federate_tiny(Moon(mu), world)
        federation.server.params = dead
        for number in (3, 4):
            federation.step(number, federation.train(number))
        assert torch.isfinite(federation.server.params).all()


# FedNTD: numbers by numpy, and what two classes leave of it.


BETA, NTD_TEMPERATURE = 0.8, 2.0


def without_true_class(logits, y):
    others = np.arange(logits.shape[1]) != y[:, None]
    return logits[others].reshape(len(y), -1)


def oracle_fedntd(world):
    """Weights after each round: CE + beta t^2 KL(q_g || q), batch mean, with q the
    softmax of the logits over t without the true class."""
    w, after = world.start, []
    for clients in world.drawn:

        def loss(v, x, y, w_g=w):
            log_q_g, log_q = (
                log_softmax(without_true_class(world.logits(u, x), y) / NTD_TEMPERATURE)
                for u in (w_g, v)
            )
            divergence = (np.exp(log_q_g) * (log_q_g - log_q)).sum(axis=1).mean()
            return world.cross_entropy(v, x, y) + BETA * NTD_TEMPERATURE**2 * divergence

        w = world.mean(w, clients, train_all(world, w, clients, loss))
        after.append(w)
    return after


@pytest.mark.slow
@pytest.mark.parametrize("world", FEW_WORLDS.values(), ids=FEW_WORLDS)
def test_the_weights_are_those_of_numpy_fedntd(world):
    check(FedNTD(BETA, NTD_TEMPERATURE), oracle_fedntd, world)


def test_it_has_no_say_with_two_classes():
    plain = federate(FedAvg(), classes=4).weights
    assert (federate(FedNTD()).weights - plain).abs().max() > 1e-4
    data = {
        k: (domain, features, labels % 2)
        for k, (domain, features, labels) in make_client_data().items()
    }
    both = [
        Federation(data, method, classes=2).run(2) for method in (FedAvg(), FedNTD())
    ]
    torch.testing.assert_close(both[0], both[1], rtol=0, atol=1e-6)


def test_logits_far_apart_do_no_harm():
    federation = federate(FedNTD(), rounds=1)
    federation.server.params = federation.server.params * 1e4
    federation.step(2, federation.train(2))
    assert torch.isfinite(federation.server.params).all()
