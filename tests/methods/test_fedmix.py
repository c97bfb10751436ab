"""FedMix: numbers by numpy, what is shared, and the floor."""

import by_numpy
import numpy as np
import pytest
import torch
from by_bytes import Federation, make_client_data
from by_numpy import CLASSES, SIZES, log_softmax, sgd_by_batch
from federations import HEADS, WORLDS, check, federate

from federatedscope_ggeur.methods import FedAvg, FedMix
from federatedscope_ggeur.rng import torch_generator

WEIGHT, SIZE = 0.2, 2


def drawn_order(k):
    generator = torch_generator(0, k, "fedmix", 0)
    return torch.randperm(SIZES[k], generator=generator).numpy()


def drawn_rows(k, number, count):
    """Which of `count` means each batch of a round gets, without end."""
    generator = torch_generator(0, k, "fedmix", number)
    while True:
        yield int(torch.randint(count, (), generator=generator))


def means_of(k):
    """Means of `SIZE` rows each, of embeddings and of one-hot labels."""
    x, y = by_numpy.rows(k)
    both = np.hstack([x, np.eye(CLASSES)[y]])[drawn_order(k)]
    starts = range(0, len(y) - SIZE + 1, SIZE)
    return [both[i : i + SIZE].mean(axis=0) for i in starts]


def loss_of(world, x, y, xbar, ybar):
    """(1-m) CE((1-m) x, y) + m CE((1-m) x, ybar) + m mean_i(g_i . xbar) as a function
    of the weights, with g_i, the gradient of CE_i in its row, worked out by hand."""
    m, hot = WEIGHT, np.eye(CLASSES)[y]

    def loss(v):
        logits = world.logits(v, (1 - m) * x)
        log_p = log_softmax(logits)
        g = np.exp(log_p) - hot
        *first, last, _ = world.layers(v)
        g = g @ last
        if world.hidden:
            g = (g * (world.represent(v, (1 - m) * x) > 0)) @ first[0]
        own, other = -(hot * log_p).sum(axis=1), -(log_p @ ybar)
        return ((1 - m) * own + m * other + m * (g @ xbar)).mean()

    return loss


def oracle(world):
    w, after = world.start, []
    means = [mean for k in SIZES for mean in means_of(k)]
    for number, clients in enumerate(world.drawn, start=1):
        trained = {}
        for k in clients:
            rows = drawn_rows(k, number, len(means))

            def mixed(x, y, rows=rows):
                xbar, ybar = np.split(means[next(rows)], [by_numpy.DIM])
                return loss_of(world, x, y, xbar, ybar)

            trained[k], _ = sgd_by_batch(mixed, w, k)
        w = world.mean(w, clients, trained)
        after.append(w)
    return after


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(FedMix(WEIGHT, SIZE), oracle, world)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
class TestSmallWeights:
    def test_weight_zero_is_fedavg_to_rounding(self, head):
        plain = federate(FedAvg(), head=head).weights
        weights = federate(FedMix(0.0), head=head).weights
        torch.testing.assert_close(weights, plain, rtol=0, atol=1e-6)

    def test_without_any_means_it_is_fedavg_to_the_bit(self, head):
        options = {"head": head, "sizes": (4, 3, 4), "min_samples": 5}
        plain = federate(FedAvg(), **options).weights
        assert torch.equal(federate(FedMix(0.3), **options).weights, plain)


def shared(sizes, min_samples, **settings):
    """What comes down to all clients of as many rows each, and these clients."""
    federation = Federation(
        make_client_data(sizes), FedMix(**settings), min_samples=min_samples
    ).round0()
    return federation.send(federation.server.start()).tensors["means"], federation


@pytest.mark.parametrize(
    ("batch_size", "min_samples", "size"), [(4, 1, 4), (4, 2, 4), (2, 3, 3)]
)
def test_no_mean_is_of_fewer_rows_than_either_setting(batch_size, min_samples, size):
    means, federation = shared((20, 2, 31), min_samples, batch_size=batch_size)
    counts = [torch.bincount(c.labels) for c in federation.clients.values()]
    used = [int(n[n >= min_samples].sum()) for n in counts]
    assert len(means) == sum(n // size for n in used)
    # The label of every row counts 1/size.
    votes = means[:, by_numpy.DIM :] * size
    torch.testing.assert_close(votes, votes.round())
    torch.testing.assert_close(votes.sum(dim=1), torch.full((len(means),), float(size)))


def test_rows_of_a_class_below_the_floor_are_in_no_mean():
    data = make_client_data((30, 30))
    domain, features, labels = data[1]
    labels = labels.where(labels != 2, torch.tensor(1))
    labels[:4] = 2
    features[:4] = 1e6
    data[1] = (domain, features, labels)
    federation = Federation(data, FedMix(), min_samples=5).round0()
    own = federation.server.ready[1].shared["means"]
    assert len(own) == 26 // 5
    assert not own[:, by_numpy.DIM + 2].any()
    assert own[:, : by_numpy.DIM].abs().max() < 100


def test_rows_that_stand_class_by_class_are_mixed():
    data = make_client_data((60,))
    domain, features, labels = data[1]
    order = labels.argsort()
    data[1] = (domain, features[order], labels[order])
    federation = Federation(data, FedMix()).round0()
    votes = federation.server.ready[1].shared["means"][:, by_numpy.DIM :]
    assert ((votes > 0).sum(dim=1) > 1).float().mean() > 0.8


def test_one_client_mixes_with_itself():
    weights = federate(FedMix(0.3), sizes=(20,)).weights
    assert torch.isfinite(weights).all()
    assert not torch.equal(weights, federate(FedAvg(), sizes=(20,)).weights)
