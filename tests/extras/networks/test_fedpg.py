"""FedPG: what a client's term is, what travels, what the server makes of it."""

import logging
from itertools import combinations

import numpy as np
import pytest
import torch
from by_bytes import CLASSES, Federation, make_client_data
from examples import examples
from federations import refuse_upload
from hypothesis import given
from hypothesis import strategies as st
from image_federations import NORMS, begun, federate_images, make_model, seeded
from image_federations import make_image_data as image_data
from torch import nn
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.networks.methods import vhl
from federatedscope_ggeur.extras.networks.methods.fedpg import (
    ImageGenerator,
    generator_loss,
    global_prototypes,
    virtual_prototypes,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import head_broadcast
from federatedscope_ggeur.methods import AUGMENTATIONS, Batch, FedAvg, build_method

SMALL = {
    "images_per_class": 6,
    "batch_size": 8,
    "noise_dim": 4,
    "steps": 4,
    "generator_batch": 8,
}
SAMPLED = {"rounds": 3, "sample_client_num": 2}


def fedpg(**settings):
    return AUGMENTATIONS["fedpg"](**{**SMALL, **settings})


def figures(federation):
    server = federation.server
    return server.task.method.figures(server.method_state)


@pytest.mark.slow
class TestBesideFedAvg:
    @pytest.mark.parametrize(("weight", "tolerance"), [(0.0, 0), (1e-20, 1e-6)])
    @pytest.mark.parametrize("norm", NORMS)
    def test_without_both_terms_it_is_fedavg(self, norm, weight, tolerance):
        """No draw is shared with the order of rows, and running statistics are of own
        rows alone: terms of hardly any weight move hardly anything."""
        plain = federate_images(FedAvg(), norm=norm, **SAMPLED).weights
        method = fedpg(virtual=weight, alignment=weight)
        found = federate_images(method, norm=norm, **SAMPLED)
        torch.testing.assert_close(found.weights, plain, rtol=tolerance, atol=tolerance)
        assert len(found.server.method_state["images"])

    @pytest.mark.parametrize("off", ["virtual", "alignment"])
    def test_each_term_acts_by_itself_from_the_second_round_on(self, off):
        plain = federate_images(FedAvg()).weights
        found = federate_images(fedpg(**{off: 0.0})).weights
        assert torch.equal(found[1], plain[1])
        assert not torch.allclose(found[2], plain[2], atol=1e-4)


@pytest.fixture
def virtual_batches():
    images = image_data((24,))[1][1]
    return vhl.virtual_batches(images, CLASSES, 8, seeded())


def first_batch(model):
    _, rows, labels = image_data()[1]
    x = model.prepare(rows)
    z = model.represent(x)
    return Batch(x, labels, z, model.classify(z))


def test_the_term_is_the_sum_of_its_formulas(virtual_batches):
    model = make_model().train()
    virtual, virtual_labels = first = next(virtual_batches)
    batch = first_batch(model)
    before = {n: t.clone() for n, t in model.named_buffers() if "running" in n}
    assert before
    found = vhl.VirtualTerm(iter([first]), 0.5, 3.0, 0.2)(model, batch)
    assert all(
        torch.equal(dict(model.named_buffers())[n], t) for n, t in before.items()
    )
    other = model.represent(virtual.float() / 127.5 - 1)
    wanted = 0.5 * F.cross_entropy(model.classify(other), virtual_labels)
    z, labels = batch.representation, batch.labels
    wanted += 3.0 * vhl.alignment(z, labels, other, virtual_labels, 0.2)
    torch.testing.assert_close(found, wanted)


def test_a_second_pass_over_a_batch_has_the_same_virtual_rows(virtual_batches):
    model, term = make_model().train(), vhl.VirtualTerm(virtual_batches, 1.0, 1.0, 0.2)
    one, other = first_batch(model), first_batch(model)
    found = [term(model, batch) for batch in (one, one, other)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


class TestUploads:
    @pytest.mark.parametrize(("support", "least"), [(3, 1), (1, 3)])
    def test_they_are_of_so_many_different_rows_of_a_class(self, support, least):
        data = {1: ("a", *image_data((30,))[1][1:])}
        three = begun(fedpg(support=support), data, min_samples=least)
        (update,) = three.train(1)
        frozen = three.clients[1].model.at(update.params)
        labels = three.clients[1].labels
        z = frozen.represent(frozen.prepare(three.clients[1].features))
        own = z[labels == 0].double().numpy()
        found = update.upload["means"][0].double().numpy()
        means = [np.mean(rows, axis=0) for rows in combinations(own, 3)]
        assert np.abs(means - found).max(axis=1).min() < 1e-6

    @pytest.mark.parametrize("least", [3, 4])
    def test_a_class_below_the_threshold_is_withheld_whatever_support_says(self, least):
        data = image_data((30, 60))
        _, _, labels = data[1]
        labels[labels == 2] = 1
        labels[:3] = 2
        federation = begun(fedpg(support=1), data, min_samples=least)
        first, second = (update.upload for update in federation.train(1))
        assert first["known"].tolist() == [1, 1, least == 3, 1]
        assert first["means"][2].any() == (least == 3)
        assert second["known"].all()

    def test_what_cannot_be_is_refused(self):
        """All else that cannot be: tests/methods/test_fpl.py."""
        refuse_upload(begun(fedpg()), {"known": 2}, "'known' must be 0 or 1")

    def test_a_client_without_rows_sends_none(self):
        federation = begun(fedpg(), image_data((20, 0)))
        _, nobody = federation.train(1)
        assert not nobody.upload["known"].any()
        federation.step(1, [*federation.train(1)])
        assert len(federation.server.method_state["images"])


class Sent:
    def __init__(self, means, known):
        self.upload = {"means": torch.tensor(means), "known": torch.tensor(known)}


def test_prototypes_are_plain_means_over_those_who_sent_the_class():
    updates = [
        Sent([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]], [1, 0, 0]),
        Sent([[3.0, 6.0], [0.0, 0.0], [7.0, 8.0]], [1, 0, 1]),
    ]
    prototypes, known = global_prototypes(updates)
    assert known.tolist() == [0, 2]
    assert prototypes.tolist() == [[2.0, 4.0], [7.0, 8.0]]
    prototypes, known = global_prototypes([Sent([[0.0, 0.0]], [0])])
    assert (prototypes.shape, len(known)) == ((0, 2), 0)


class TestTheSet:
    @pytest.mark.slow
    def test_it_holds_every_class_though_nobody_has_one(self):
        data = image_data((20, 20))
        for _, _, labels in data.values():
            labels[labels == 3] = 0
        federation = federate_images(fedpg(), data=data)
        images = federation.server.method_state["images"]
        assert images.shape == (CLASSES * SMALL["images_per_class"], 64)
        assert images.dtype == torch.uint8
        assert len(images.unique(dim=0)) == len(images)

    @pytest.mark.slow
    def test_it_alone_goes_down_to_train_and_nothing_to_score(self):
        federation = federate_images(build_method("fedavg", "fedpg", SMALL))
        down = federation.send(federation.broadcast(3)).download
        assert set(down) == {"augmentation.images"}
        images = federation.server.method_state["augmentation.images"]
        assert torch.equal(down["augmentation.images"], images)
        assert not head_broadcast(federation.server, 3).download

    @pytest.mark.slow
    def test_each_round_draws_another(self):
        federation = begun(fedpg())
        drawn = []
        for number in (1, 2):
            federation.step(number, federation.train(number))
            drawn.append(federation.server.method_state["images"])
        assert not torch.equal(*drawn)

    @pytest.mark.slow
    def test_its_accuracy_is_the_share_that_the_new_network_takes_for_its_labels(self):
        federation = federate_images(fedpg(), rounds=2)
        server = federation.server
        frozen = server.model.at(server.params)
        images = server.method_state["images"]
        found = frozen(frozen.prepare(images)).argmax(dim=1)
        wanted = (found == torch.arange(len(images)) % CLASSES).double().mean()
        assert figures(federation) == {"virtual_accuracy": float(wanted)}

    def test_there_is_none_after_the_last_round_that_is_to_have_one(self):
        federation = begun(fedpg(until_round=2))
        plain = begun(FedAvg())
        states = []
        for number in (1, 2, 3):
            updates = federation.train(number)
            assert updates[0].upload["known"].any() == (number < 2)
            federation.step(number, updates)
            states.append(federation.server.method_state)
        assert [len(state["images"]) > 0 for state in states] == [True, False, False]
        assert figures(federation) == {}
        # The third round is FedAvg's from where it begins.
        plain.server.params = federation.server.params
        ours, theirs = (f.train(4)[0].params for f in (federation, plain))
        assert torch.equal(ours, theirs)


class TestTheServer:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "changes",
        [
            {"prototypes": "global"},
            {"constraint": False, "prototype_lr": 0.1},
            {"strength": 5.0, "lr": 1e-2},
            {"scale": 0.1, "lr": 1e-2},
        ],
        ids=str,
    )
    def test_each_switch_changes_the_generator(self, changes):
        same = {k: v for k, v in changes.items() if k in ("prototype_lr", "lr")}
        plain = federate_images(fedpg(**same)).server.method_state["generator"]
        found = federate_images(fedpg(**changes)).server.method_state["generator"]
        assert not torch.equal(found, plain)

    def test_a_generator_that_diverges_stays_as_it_was(self, caplog):
        federation = federate_images(fedpg(), rounds=1)
        before = dict(federation.server.method_state)
        federation.server.task.method.lr = 1e38
        with caplog.at_level(logging.WARNING):
            federation.step(2, federation.train(2))
        after = federation.server.method_state
        assert "fedpg's generator diverged" in caplog.text
        for name in ("generator", "images"):
            assert torch.equal(after[name], before[name])
        assert torch.isfinite(federation.server.params).all()

    def test_one_that_diverges_at_once_leaves_no_images(self, caplog):
        federation = begun(fedpg(lr=1e38))
        federation.step(1, federation.train(1))
        assert not len(federation.server.method_state["images"])
        assert figures(federation) == {}
        federation.step(2, federation.train(2))


def test_one_set_of_noise_serves_all_rounds_and_no_prototypes_travel():
    federation = begun(fedpg(source="noise"))
    drawn = []
    for number in (1, 2, 3):
        updates = federation.train(number)
        assert not any(update.upload for update in updates)
        federation.step(number, updates)
        drawn.append(federation.server.method_state["images"])
    assert torch.equal(drawn[0], drawn[2])
    assert drawn[0].shape == (CLASSES * SMALL["images_per_class"], 64)
    assert "virtual_accuracy" in figures(federation)


@pytest.mark.parametrize("name", ["fedpg", "vhl"])
def test_embeddings_are_refused(name):
    method = build_method("fedavg", name)
    with pytest.raises(ConfigError, match=f"{name}.* trains on images.*network.name"):
        Federation(make_client_data(), method)


# FedPG's generator: its sizes, its loss by numpy, its gradient, its draws.


SCALE, STRENGTH = 2.0, 0.001


@pytest.mark.parametrize(
    ("shape", "size"),
    [((3, 32, 32), 3_909_504), ((1, 28, 28), 1_564_304), ((3, 64, 64), 13_355_904)],
)
def test_the_fully_connected_one_has_the_authors_size(shape, size):
    made = ImageGenerator(512, 10, shape)
    assert sum(p.numel() for p in made.parameters()) == size


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 10, 10), (1, 7, 7)])
class TestDraws:
    def made(self, shape):
        return ImageGenerator(4, 3, shape).reset(seeded())

    def test_they_are_balanced_rows_of_pixels(self, shape):
        images = self.made(shape).draw(5, seeded(1))
        assert images.shape == (15, np.prod(shape))
        assert images.dtype == torch.uint8

    def test_numbers_lie_within_one_and_move_with_label_and_noise(self, shape):
        made = self.made(shape).eval()
        noise = torch.rand(4, 4, generator=seeded(2))
        noise[1] = noise[0]
        images = made(noise, torch.tensor([0, 1, 0, 0]))
        assert images.abs().max() <= 1
        assert not torch.equal(images[0], images[1])
        assert not torch.equal(images[2], images[3])

    def test_running_statistics_stay(self, shape):
        made = self.made(shape)
        before = {n: t.clone() for n, t in made.state_dict().items()}
        made.draw(5, seeded(1))
        assert all(torch.equal(t, before[n]) for n, t in made.state_dict().items())


def test_the_start_is_drawn_as_torch_does_from_the_generator_alone():
    one, again = (ImageGenerator(6, 4, (1, 8, 8)).reset(seeded(3)) for _ in "ab")
    for mine, other in zip(one.parameters(), again.parameters()):
        assert torch.equal(mine, other)
    for layer in one.layers:
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            bound = layer.weight[0].numel() ** -0.5
            assert 0.9 * bound < layer.weight.abs().max() <= bound
            assert 0 < layer.bias.abs().max() <= bound


def oracle(z, labels, virtual, prototypes, known):
    """L_G by loops over images and classes."""

    def softmax_loss(squares, own):
        return SCALE * squares[own] + np.log(np.exp(-SCALE * squares).sum())

    total = 0.0
    for row, y in zip(z, labels):
        squares = np.array([((row - p) ** 2).sum() for p in virtual])
        total += (softmax_loss(squares, y) + STRENGTH * squares[y]) / len(z)
    for i, c in enumerate(known):
        squares = np.array([((virtual[c] - p) ** 2).sum() for p in prototypes])
        total += softmax_loss(squares, i) / len(known)
    return total


def numbers(seed, known):
    rng = np.random.default_rng(seed)
    z, virtual = 0.5 * rng.normal(size=(5, 3)), 0.5 * rng.normal(size=(4, 3))
    prototypes = 0.5 * rng.normal(size=(len(known), 3))
    labels = rng.integers(4, size=5)
    known = np.array(known, dtype=np.int64)
    return z, labels, virtual, prototypes, known


@given(st.integers(0, 10**6), st.sets(st.integers(0, 3)))
@examples(40)
def test_the_loss_is_that_of_loops(seed, known):
    given = numbers(seed, sorted(known))
    found = generator_loss(*map(torch.tensor, given), SCALE, STRENGTH)
    np.testing.assert_allclose(found.item(), oracle(*given), rtol=1e-9)


class TestVirtualPrototypes:
    def test_without_known_classes_they_are_normal(self):
        none = torch.zeros(0, 400), torch.zeros(0, dtype=torch.int64)
        drawn = virtual_prototypes((5, 400), *none, seeded())
        assert torch.equal(drawn, torch.randn(5, 400, generator=seeded()))

    def test_known_classes_start_at_theirs_others_around_the_mean(self):
        prototypes = 3 + 0.1 * torch.randn(3, 400, generator=seeded(1))
        known = torch.tensor([0, 2, 3])
        drawn = virtual_prototypes((5, 400), prototypes, known, seeded())
        assert torch.equal(drawn[known], prototypes)
        for c in (1, 4):
            assert abs(drawn[c].mean() - 3) < 0.05
            assert 0.05 < drawn[c].std() < 0.2


class Flat(nn.Module):
    """A model of one layer on 16 pixels."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 3)
        nn.init.normal_(self.layer.weight, generator=seeded(4))
        self.requires_grad_(False)

    def prepare(self, rows):
        return 2 * rows - 1

    def represent(self, x):
        return self.layer(x)


class TestTraining:
    known = torch.tensor([0, 2])
    prototypes = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, -2.0]])

    def run(self, model, **changes):
        made = ImageGenerator(4, 4, (1, 4, 4)).reset(seeded())
        virtual = torch.randn(4, 3, generator=seeded(5))
        settings = {"steps": 60, "generator_batch": 32, "prototype_lr": 0.05}
        settings.update(lr=0.01, scale=SCALE, strength=STRENGTH)
        method = fedpg(**{**settings, **changes})
        moved = method.train_generator(
            made, model, virtual, self.prototypes, self.known, seeded(6)
        )
        return made, virtual, moved

    @pytest.mark.slow
    def test_images_come_near_their_prototypes_and_these_near_the_clients(self):
        model = Flat()
        frozen = {n: t.clone() for n, t in model.state_dict().items()}
        made, before, after = self.run(model, steps=200)
        images = made.draw(20, seeded(7)).float() / 127.5 - 1
        nearest = torch.cdist(model.represent(images), after).argmin(dim=1)
        labels = torch.arange(80) % 4
        assert (nearest == labels).double().mean() > 0.9
        squares = torch.cdist(after[self.known], self.prototypes)
        assert squares.argmin(dim=1).tolist() == [0, 1]
        apart = [(v[self.known] - self.prototypes).norm() for v in (before, after)]
        assert apart[1] < apart[0]
        assert all(torch.equal(t, frozen[n]) for n, t in model.state_dict().items())

    @pytest.mark.slow
    def test_a_rate_of_zero_moves_the_one_thing_and_not_the_other(self):
        start = ImageGenerator(4, 4, (1, 4, 4)).reset(seeded())
        made, before, after = self.run(Flat(), lr=1e-30)
        for one, other in zip(made.parameters(), start.parameters()):
            torch.testing.assert_close(one, other)
        assert not torch.equal(before, after)
        _, before, after = self.run(Flat(), prototype_lr=1e-30)
        torch.testing.assert_close(before, after)
