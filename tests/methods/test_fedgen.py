"""FedGen: numbers by numpy, what the generator learns, what travels, who counts."""

import logging
from copy import deepcopy

import by_numpy
import numpy as np
import pytest
import torch
from by_bytes import CLASSES, Federation, few_of_a_class, make_client_data, make_rows
from by_numpy import gradient, log_softmax, means_of_rounds, rows, sgd_by_batch
from federations import FEW_WORLDS, MODELS, check, federate_tiny, refuse_first_upload

from federatedscope_ggeur.methods import FedGen
from federatedscope_ggeur.models import build_model
from federatedscope_ggeur.rng import torch_generator

ALPHA, NOISE, HIDDEN, LR, STEPS, DRAWS = 0.8, 2, 3, 0.05, 2, 5
TINY = FedGen(ALPHA, NOISE, HIDDEN, LR, STEPS, DRAWS)


def drawn(generator, classes, size):
    """Labels, evenly of `classes`, and noise."""
    which = torch.randint(len(classes), (size,), generator=generator).numpy()
    noise = torch.randn(size, NOISE, generator=generator).double().numpy()
    return np.array(classes)[which], noise


def first_generator(shapes):
    """Weights drawn as a linear layer's are: within the root of its inputs' number."""
    generator, parts = torch_generator(0, "server", "fedgen", 0), []
    for shape, inputs in zip(shapes, (NOISE + CLASSES,) * 2 + (HIDDEN,) * 2):
        part = torch.empty(int(np.prod(shape)))
        parts.append(part.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator))
    return torch.cat(parts).double().numpy()


class Generator:
    """G(noise, y): Linear, ReLU, Linear on noise beside one-hot y; ReLU for an MLP."""

    def __init__(self, world):
        width = world.hidden or by_numpy.DIM
        first = (HIDDEN, NOISE + CLASSES), (HIDDEN,)
        self.shapes = [*first, (width, HIDDEN), (width,)]
        self.rectified = bool(world.hidden)

    def __call__(self, v, noise, y):
        parts = by_numpy.shaped(v, self.shapes)
        x = np.hstack([noise, np.eye(CLASSES)[y]])
        x = np.maximum(x @ parts[0].T + parts[1], 0) @ parts[2].T + parts[3]
        return np.maximum(x, 0) if self.rectified else x


def last_logits(world, w, x):
    *_, last, bias = world.layers(w)
    return x @ last.T + bias


def cross_entropy(logits, y):
    return -log_softmax(logits)[np.arange(len(y)), y].mean()


def closeness(noise, x):
    """exp(-mean_ij |e_i - e_j|^2 |G_i - G_j|_1), distances as means over dimensions."""
    apart = [
        ((noise[i] - noise[j]) ** 2).mean() * abs(x[i] - x[j]).mean()
        for i in range(len(x))
        for j in range(len(x))
    ]
    return np.exp(-np.mean(apart))


def train_generator(world, vector, trained, number):
    """`STEPS` of Adam on CE(sum_k a_ky l_k(G(noise, y)), y) + closeness."""
    made, generator = Generator(world), torch_generator(0, "server", "fedgen", number)
    counts = {k: np.bincount(rows(k)[1], minlength=CLASSES) for k in trained}
    total = sum(counts.values())
    mean, square = np.zeros_like(vector), np.zeros_like(vector)
    for t in range(1, STEPS + 1):
        y, noise = drawn(generator, np.flatnonzero(total), DRAWS)

        def loss(v, y=y, noise=noise):
            x = made(v, noise, y)
            logits = sum(
                (counts[k][y] / total[y])[:, None] * last_logits(world, w, x)
                for k, w in trained.items()
            )
            return cross_entropy(logits, y) + closeness(noise, x)

        g = gradient(loss, vector, step=1e-6)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g**2
        scale = np.sqrt(square / (1 - 0.999**t)) + 1e-8
        vector = vector - LR * mean / (1 - 0.9**t) / scale
    return vector, set(np.flatnonzero(total))


def oracle(world):
    made, seen = Generator(world), set()
    vector = first_generator(made.shapes)

    def train(w, clients, number):
        nonlocal vector
        trained = {}
        for k in clients:
            generator = torch_generator(0, k, "fedgen", number)

            def with_draws(x, y, vector=vector, generator=generator):
                if not seen:
                    return lambda v: world.cross_entropy(v, x, y)
                labels, noise = drawn(generator, sorted(seen), len(y))
                made_rows = made(vector, noise, labels)
                return lambda v: (
                    world.cross_entropy(v, x, y)
                    + ALPHA * cross_entropy(last_logits(world, v, made_rows), labels)
                )

            trained[k], _ = sgd_by_batch(with_draws, w, k)
        if any(len(rows(k)[1]) for k in clients):
            vector, classes = train_generator(world, vector, trained, number)
            seen.update(classes)
        return trained

    return means_of_rounds(world, train)


@pytest.mark.parametrize("world", FEW_WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(TINY, oracle, world)


@pytest.mark.parametrize("drawn", [((1,),), ((1, 4), (1,))], ids=str)
def test_classes_are_seen_from_the_first_round_that_has_a_teacher_on(drawn):
    federation = federate_tiny(TINY, by_numpy.World(drawn))
    held = {c for clients in drawn for k in clients for c in rows(k)[1]}
    seen = federation.server.method_state["seen"]
    assert set(seen.nonzero().flatten().tolist()) == held
    assert held == ({1, 2} if len(drawn) == 1 else {0, 1, 2})


def test_a_round_without_teachers_keeps_the_generator():
    federation = Federation(make_client_data((20, 30, 0)), FedGen()).round0()
    server = federation.server
    federation.training.step(1, federation.train(1))
    before = deepcopy(server.method_state)
    assert before
    federation.training.sample = lambda _: [3]
    federation.training.step(2, federation.train(2))
    assert all(torch.equal(server.method_state[n], before[n]) for n in before)


class TestTheThreshold:
    def test_a_class_below_it_is_neither_counted_nor_made(self):
        data = make_client_data((40, 40))
        for rows_of_client in data.values():
            few_of_a_class(rows_of_client)
        federation = Federation(data, FedGen(), min_samples=5).round0()
        for k, client in federation.clients.items():
            wanted = torch.bincount(client.labels, minlength=CLASSES)
            assert wanted[2] == 3
            wanted[wanted < 5] = 0
            assert torch.equal(federation.server.init_uploads[k]["counts"], wanted)
        federation.step(1, federation.train(1))
        assert federation.server.method_state["seen"].tolist() == [1, 1, 0, 1]

    def test_a_client_that_counts_nothing_teaches_nothing(self):
        data = make_client_data((40, 40))
        states = []
        for rest in ({}, {3: ("domain 3", *make_rows(4, seed=3))}):
            federation = Federation({**data, **rest}, FedGen(), min_samples=5).round0()
            federation.step(1, federation.train(1))
            states.append(federation.server.method_state)
        assert all(torch.equal(states[0][n], states[1][n]) for n in states[0])


def test_counts_stay_on_the_server():
    federation = Federation(make_client_data(), FedGen()).round0()
    assert federation.augmentation.start() is None
    assert set(federation.broadcast(1).download) == {"generator", "seen"}


def test_a_generator_that_diverges_stays_as_it_was(caplog):
    federation = Federation(make_client_data(), FedGen()).round0()
    before = federation.server.method_state["generator"]
    updates = federation.train(1)
    updates[0].params[:] = 9e29  # 1e30 is the most that is taken
    with caplog.at_level(logging.WARNING):
        federation.step(1, updates)
    assert torch.equal(federation.server.method_state["generator"], before)
    assert not federation.server.method_state["seen"].any()
    assert "fedgen's generator diverged" in caplog.text


@pytest.mark.parametrize("count", [-1, 2**40 + 1, -(2**63)])
def test_counts_that_cannot_be_are_refused(count):
    refuse_first_upload(FedGen(), "counts", 2, count, "'counts' must lie")


def test_the_generator_is_one_vector_of_the_size_said():
    for model in MODELS.values():
        made = FedGen(noise_dim=3, hidden=5).generator_of(
            build_model(6, CLASSES, model)
        )
        vector = made.initial(torch.Generator().manual_seed(0))
        width = model.hidden or 6
        assert len(vector) == (3 + CLASSES + 1) * 5 + (5 + 1) * width
