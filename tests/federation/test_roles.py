"""Client and server over the rounds: weights, refusals, reproducibility.

Tests of federation/memory.py, federation/server.py and federation/settings.py.
"""

import pytest
import torch
from by_bytes import CLASSES, Federation, make_client_data, make_rows

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    AugmentationClient,
)
from federatedscope_ggeur.federation.exchanges.augmentation.messages import PrepareReply
from federatedscope_ggeur.federation.exchanges.training.fit import training_sets
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.geometry import PerAnchorSizes
from federatedscope_ggeur.methods import FedAvg, LocalHooks
from federatedscope_ggeur.models import ModelSettings

MLP = ModelSettings(hidden=8)


class TestWeights:
    def mean_by(self, updates, weights):
        total = sum(weights[u.client] for u in updates)
        parts = [u.params.double() * weights[u.client] / total for u in updates]
        return sum(parts).float()

    @pytest.mark.parametrize(
        ("weight", "ignore", "wanted"),
        [
            # 4 classes, at least 12 rows of each, and 5 around each other's prototype.
            ("augmented", False, None),
            ("original", False, {1: 10, 2: 40, 3: 0}),
            ("augmented", True, {1: 1, 2: 1, 3: 1}),
            ("original", True, {1: 1, 2: 1, 3: 0}),
        ],
    )
    def test_average_by_the_rows_asked_for(self, weight, ignore, wanted):
        federation = Federation(
            make_client_data((10, 40, 0)),
            steps=(1, 2),
            weight=weight,
            ignore_weight=ignore,
        ).round0()
        rows = {k: client.recipe.rows for k, client in federation.clients.items()}
        updates = federation.train(1)
        federation.step(1, updates)
        torch.testing.assert_close(
            federation.server.params, self.mean_by(updates, wanted or rows)
        )


@pytest.mark.parametrize("steps", [(), (1,)])
def test_clients_of_the_same_rows_draw_differently(steps):
    rows = make_rows(20, seed=1)
    twins = {1: ("a", *rows), 2: ("b", *rows)}
    one, two = Federation(twins, steps=steps).round0().train(1)
    assert not torch.equal(one.params, two.params)


def test_first_weights_depend_on_the_seed_alone():
    sizes = (20, 0, 30), (9,)
    one, other = (Federation(make_client_data(s), model=MLP).run(0) for s in sizes)
    assert torch.equal(one[0], other[0])


def test_the_method_sees_updates_in_client_order():
    class Look(FedAvg):
        def step(self, params, updates, state, context):
            self.clients = [update.client for update in updates]
            return params, state

    method = Look()
    federation = Federation(make_client_data((9,) * 5), method).round0()
    federation.step(1, reversed(federation.train(1)))
    assert method.clients == [1, 2, 3, 4, 5]


def test_training_that_diverges_says_who_when_and_what_to_change():
    data = make_client_data((20, 30))
    wild = TrainingSettings(OptimizerSettings("SGD", 1e30), 10, "epoch", 8)
    federation = Federation(data, training=wild, model=MLP).round0()
    message = r"client 1, round 1: .*diverged.*train\.optimizer\.lr \(now 1e\+30\)"
    with pytest.raises(GGEURError, match=message):
        federation.train(1)


class KeepsRows(FedAvg):
    """A method whose client state is made of the rows it was trained on."""

    def local(self, context):
        return LocalHooks(finish=lambda outcome: ({}, {"rows": outcome.features[:2]}))


def test_client_state_is_the_client_s_own_however_sets_are_kept():
    kept, redrawn = (
        Federation(
            make_client_data(), method=KeepsRows(), steps=(1,), memory=memory
        ).round0()
        for memory in (1e9, 0)
    )
    for federation in (kept, redrawn):
        federation.step(1, federation.train(1))
        federation.train(2)
    for k, client in kept.clients.items():
        assert torch.equal(client.state["rows"], redrawn.clients[k].state["rows"])


def test_a_client_that_drop_last_leaves_nothing_to_has_no_say(caplog):
    training = TrainingSettings(batch_size=10_000, drop_last=True)
    federation = Federation(make_client_data(), training=training)
    with pytest.raises(GGEURError, match="no client has any rows to train on"):
        federation.round0()
    assert "drop_last" in caplog.text


def test_rounds_are_scored_every_so_often_and_at_the_end():
    server = Federation(make_client_data()).server
    assert [r for r in range(1, 11) if server.evaluates(r)] == [3, 6, 9, 10]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_windows_hold_everyone_once_in_order(size):
    numbers = [2, 3, 5, 7, 11]
    groups = windows(numbers, size)
    assert [number for group in groups for number in group] == numbers
    assert all(len(group) == size for group in groups[:-1])
    assert 1 <= len(groups[-1]) <= size
    assert list(windows([], size)) == []


class TestSampling:
    def drawn(self, wanted, rounds=20, seed=0):
        federation = Federation(
            make_client_data((5,) * 9), sample_client_num=wanted, seed=seed
        )
        return [federation.training.sample(number) for number in range(1, rounds + 1)]

    @pytest.mark.parametrize("wanted", [1, 4, 8, 9, 20])
    def test_as_many_as_wanted_ascending_and_distinct(self, wanted):
        for drawn in self.drawn(wanted):
            assert len(drawn) == min(wanted, 9)
            assert drawn == sorted(set(drawn))
            assert set(drawn) <= set(range(1, 10))
            assert all(type(number) is int for number in drawn)

    def test_depends_on_seed_and_round_alone(self):
        assert self.drawn(4) == self.drawn(4)
        assert self.drawn(4) != self.drawn(4, seed=1)
        assert len({tuple(drawn) for drawn in self.drawn(4)}) > 10

    def test_everyone_is_drawn_now_and_then(self):
        assert set().union(*self.drawn(2, rounds=60)) == set(range(1, 10))


# Round 0 of client and server together: statistics, geometry, prototypes, sets.
#
# Tests of federation/prototypes.py and federation/global_shapes.py.


def shared_domains():
    """Five clients in three domains, one without data, unequal and interleaved."""
    domains = {1: "art", 2: "photo", 3: "art", 4: "sketch", 5: "photo"}
    sizes = {1: 20, 2: 33, 3: 7, 4: 0, 5: 11}
    return {k: (domains[k], *make_rows(sizes[k], seed=k)) for k in domains}


def uneven_domains():
    """The same, but class 2 is nowhere and class 3 in one domain alone."""
    data = shared_domains()
    for k, (domain, features, labels) in data.items():
        kept = labels != 2 if domain == "art" else labels < 2
        data[k] = domain, features[kept], labels[kept]
    return data


def pooled(data):
    features = torch.cat([features for _, features, _ in data.values()])
    labels = torch.cat([labels for _, _, labels in data.values()])
    return features, labels


def prototypes_by_hand(data, client, kind, min_samples=1):
    """(source, class) -> mean, over every source but the client's own."""
    means = {}
    own = data[client][0] if kind == "domain" else client
    sources = [domain if kind == "domain" else k for k, (domain, *_) in data.items()]
    for source in dict.fromkeys(sources):
        for c in range(CLASSES):
            rows = [
                features[labels == c].double()
                for k, (domain, features, labels) in data.items()
                if source == (domain if kind == "domain" else k)
                and (labels == c).sum() >= min_samples
            ]
            if rows and source != own:
                means[source, c] = torch.cat(rows).mean(dim=0)
    return means


def test_geometry_is_that_of_the_pooled_covariance():
    data = shared_domains()
    federation = Federation(data, steps=(1,)).round0()
    shapes = federation.send(federation.augmentation.make_geometry()).shapes
    features, labels = pooled(data)
    assert list(shapes) == list(range(CLASSES))
    for c, shape in shapes.items():
        sigma = torch.cov(features[labels == c].double().T, correction=0)
        basis = shape.basis("covariance").double()
        torch.testing.assert_close(basis.T @ basis, sigma, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["domain", "client"])
@pytest.mark.parametrize("min_samples", [1, 5])
@pytest.mark.parametrize("domains", [shared_domains, uneven_domains])
def test_prototypes_are_the_class_means_of_all_others(kind, min_samples, domains):
    data = domains()
    federation = Federation(
        data, steps=(1, 2), prototypes=kind, min_samples=min_samples
    ).round0()
    for client in data:
        wanted = prototypes_by_hand(data, client, kind, min_samples)
        received = federation.send(federation.augmentation.prototypes(client))
        assert received.labels.tolist() == [c for _, c in wanted]
        torch.testing.assert_close(
            received.prototypes.double(),
            torch.stack(list(wanted.values())),
            rtol=0,
            atol=1e-6,
        )


def rows_of_set(federation, client, label):
    features, labels = federation.clients[client].recipe.draw(1)
    return features[labels == label]


@pytest.mark.parametrize("steps", [(), (1,), (1, 2)])
@pytest.mark.parametrize("alone", [False, True])
def test_the_set_that_a_client_trains_on(steps, alone):
    """Also of a client without rows, of classes that it lacks, and of one client."""
    data = uneven_domains()
    if alone:
        data = {1: data[1]}
    federation = Federation(data, steps=steps).round0()
    for k, (_, features, labels) in data.items():
        others = prototypes_by_hand(data, k, "domain")
        for c in range(CLASSES):
            own = features[labels == c]
            rows = rows_of_set(federation, k, c)
            wanted = len(own)
            if 1 in steps and len(own):
                wanted = max(12, wanted)
            if 2 in steps:
                wanted += 5 * sum(other == c for _, other in others)
            assert len(rows) == wanted
            assert torch.equal(rows[: len(own)], own)
    if steps:
        shapes = federation.augmentation.make_geometry().shapes
        assert list(shapes) == federation.server.merged.statistics.classes == [0, 1, 3]


def test_without_steps_nothing_of_the_data_goes_up():
    federation = Federation(make_client_data(), steps=())
    assert not federation.settings.demands.statistics
    federation.round0()
    assert federation.server.merged.statistics.classes == []
    reply = federation.side(1, AugmentationClient).prepare(None, None)
    assert (reply.aggregation_weight, dict(reply.init_upload)) == (20, {})


def test_rows_that_no_step_enlarges_are_not_copied():
    federation = Federation(make_client_data(), steps=()).round0()
    client = federation.clients[1]
    (rows,) = training_sets([client], 1)
    assert rows.features.data_ptr() == client.features.data_ptr()
    drawn = client.recipe.draw(1)
    assert all(map(torch.equal, rows.gathered(), drawn))


def test_all_below_the_threshold_train_on_their_originals():
    data = make_client_data((8, 10))
    federation = Federation(data, steps=(1, 2), min_samples=100).round0()
    assert federation.augmentation.make_geometry().shapes == {}
    for k, (_, _, labels) in data.items():
        drawn, drawn_labels = federation.clients[k].recipe.draw(1)
        assert len(drawn) == len(labels)
        assert sorted(drawn_labels.tolist()) == sorted(labels.tolist())


def test_a_class_below_the_threshold_uses_the_shape_that_others_uploaded():
    rows, labels = make_rows(40, seed=1)
    few = torch.cat([torch.nonzero(labels != 0).flatten(), torch.tensor([0])])
    labels = labels.clone()
    labels[0] = 0
    data = {1: ("a", rows[few], labels[few]), 2: ("b", *make_rows(40, seed=2))}
    federation = Federation(data, steps=(1, 2), min_samples=5).round0()
    assert (labels[few] == 0).sum() < 5
    assert 0 not in federation.augmentation.prototypes(2).labels
    # 12 in step 1 around its own few rows, 5 around the other's prototype.
    assert len(rows_of_set(federation, 1, 0)) == 12 + 5
    assert len(rows_of_set(federation, 2, 0)) == 12


def test_weight_counts_the_rows_that_the_cut_left():
    sizes = PerAnchorSizes(per_sample=10, per_prototype=10, target=15)
    federation = Federation(make_client_data((40, 30)), steps=(1, 2), sizes=sizes)
    federation.round0()
    assert federation.clients[1].recipe.rows == 15 * CLASSES


def test_a_start_without_everyone_is_refused():
    augmentation = Federation(make_client_data()).augmentation
    augmentation.add_reply(PrepareReply(2, 5.0))
    with pytest.raises(GGEURError, match=r"clients \[1, 3\] are not ready"):
        augmentation.start()


def test_training_before_round_0_is_refused():
    federation = Federation(make_client_data())
    with pytest.raises(GGEURError, match=r"client 1 .*before round 0"):
        federation.train(1)
