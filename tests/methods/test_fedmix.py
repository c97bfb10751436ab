"""FedMix: numbers by numpy, what goes up once, and the threshold."""

import by_numpy
import numpy as np
import pytest
import torch
from by_bytes import Federation, few_of_a_class, make_client_data
from by_numpy import CLASSES, SIZES, log_softmax, means_of_rounds, sgd_by_batch
from federations import FEW_WORLDS, MODELS, check, federate, refuse_first_upload

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
    """Means of all rows, of embeddings and of one-hot labels, over as many groups as
    `SIZE` rows fit in, the first ones larger by one while rows are left over."""
    x, y = by_numpy.rows(k)
    both = np.hstack([x, np.eye(CLASSES)[y]])[drawn_order(k)]
    groups = len(y) // SIZE
    sizes = [(len(y) + groups - 1 - i) // groups for i in range(groups)]
    ends = np.cumsum([0, *sizes])
    assert min(sizes, default=SIZE) >= SIZE
    assert ends[-1] == len(y)
    return [both[i:j].mean(axis=0) for i, j in zip(ends, ends[1:])]


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
    means = [mean for k in SIZES for mean in means_of(k)]

    def train(w, clients, number):
        trained = {}
        for k in clients:
            rows = drawn_rows(k, number, len(means))

            def mixed(x, y, rows=rows):
                xbar, ybar = np.split(means[next(rows)], [by_numpy.DIM])
                return loss_of(world, x, y, xbar, ybar)

            trained[k], _ = sgd_by_batch(mixed, w, k)
        return trained

    return means_of_rounds(world, train)


@pytest.mark.parametrize("world", FEW_WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(FedMix(WEIGHT, SIZE), oracle, world)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_without_any_means_it_is_fedavg_to_the_bit(model):
    options = {"model": model, "sizes": (4, 3, 4), "min_samples": 5}
    plain = federate(FedAvg(), **options).weights
    assert torch.equal(federate(FedMix(0.3), **options).weights, plain)


@pytest.mark.parametrize(
    ("batch_size", "min_samples", "size"), [(4, 1, 4), (4, 2, 4), (2, 3, 3), (9, 1, 9)]
)
def test_all_rows_are_in_means_of_no_fewer_than_either_setting(
    batch_size, min_samples, size
):
    """A row left over would be the difference to what else is known of all rows."""
    method, data = FedMix(batch_size=batch_size), make_client_data((20, 2, 31))
    federation = Federation(data, method, min_samples=min_samples).round0()
    for k, client in federation.clients.items():
        means = federation.server.init_uploads[k]["means"]
        counts = torch.bincount(client.labels, minlength=CLASSES)
        allowed = (counts >= min_samples)[client.labels]
        n = int(allowed.sum())
        groups = n // size
        assert len(means) == groups
        assert (groups == 0) == (k == 2)  # two rows make no mean
        if k == 2:
            continue
        sizes = torch.tensor([len(g) for g in torch.arange(n).tensor_split(groups)])
        assert sizes.min() >= size
        assert sizes.max() - sizes.min() <= 1
        totals, votes = (means * sizes[:, None]).split([by_numpy.DIM, CLASSES], dim=1)
        features = client.features[allowed].sum(dim=0)
        torch.testing.assert_close(totals.sum(dim=0), features, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(votes, votes.round(), rtol=0, atol=1e-4)
        wanted = counts.where(counts >= min_samples, torch.tensor(0))
        assert torch.equal(votes.round().sum(dim=0).long(), wanted)


def test_rows_of_a_class_below_the_threshold_are_in_no_mean():
    data = make_client_data((30, 30))
    _, features, _ = few_of_a_class(data[1], 4)
    features[:4] = 1e6
    federation = Federation(data, FedMix(), min_samples=5).round0()
    own = federation.server.init_uploads[1]["means"]
    assert len(own) == 26 // 5
    assert own[:, by_numpy.DIM :].sum(dim=1).allclose(torch.ones(5))
    assert not own[:, by_numpy.DIM + 2].any()
    assert own[:, : by_numpy.DIM].abs().max() < 100


def test_rows_that_stand_class_by_class_are_mixed():
    data = make_client_data((60,))
    domain, features, labels = data[1]
    order = labels.argsort()
    data[1] = (domain, features[order], labels[order])
    federation = Federation(data, FedMix()).round0()
    votes = federation.server.init_uploads[1]["means"][:, by_numpy.DIM :]
    assert ((votes > 0).sum(dim=1) > 1).float().mean() > 0.8


FAR, ODD = r"embeddings .*within \+-1e\+15", r"labels .*0\.\.1 .*sum to 1"


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        (0, 2e15, FAR),
        (by_numpy.DIM - 1, -2e15, FAR),
        (by_numpy.DIM, -0.1, ODD),
        (slice(by_numpy.DIM, None), 0.4, ODD),
        (slice(by_numpy.DIM, None), 0.0, ODD),
        (by_numpy.DIM, 1e30, ODD),
    ],
)
def test_means_that_cannot_be_are_refused(column, value, problem):
    refuse_first_upload(FedMix(), "means", (0, column), value, problem)
