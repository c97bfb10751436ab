"""Round 0 of client and server together: statistics, geometry, prototypes, sets.

Tests of federation/prototypes.py and federation/global_shapes.py.
"""

import pytest
import torch
from by_bytes import CLASSES, DIM, Federation, make_client_data, make_rows

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation.exchanges.augmentation.messages import PrepareReply
from federatedscope_ggeur.federation.exchanges.statistics.exchange import (
    StatisticsClient,
)
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingClient
from federatedscope_ggeur.geometry import ClassStatistics, PerAnchorSizes

NOBODY = (torch.zeros(0, DIM), torch.zeros(0, dtype=torch.int64))


def shared_domains():
    """Five clients in three domains, one without data, unequal and interleaved."""
    domains = {1: "art", 2: "photo", 3: "art", 4: "sketch", 5: "photo"}
    sizes = {1: 20, 2: 33, 3: 7, 4: 0, 5: 11}
    return {k: (domains[k], *make_rows(sizes[k], seed=k)) for k in domains}


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
            rows = []
            for k, (domain, features, labels) in data.items():
                of_class = features[labels == c]
                belongs = source == (domain if kind == "domain" else k)
                if source != own and belongs and len(of_class) >= min_samples:
                    rows.append(of_class.double())
            if rows:
                means[source, c] = torch.cat(rows).mean(dim=0)
    return means


@pytest.mark.parametrize("window", [1, 2, 8])
def test_merged_statistics_are_the_pooled_ones(window):
    data = shared_domains()
    federation = Federation(data, steps=(1,))
    federation.collect_statistics(window)
    merged = federation.server.statistics
    features, labels = pooled(data)
    assert merged.classes == list(range(CLASSES))
    for c in merged.classes:
        rows = features[labels == c].double()
        assert merged.counts[c] == len(rows)
        # What travels is rounded to float32.
        torch.testing.assert_close(merged.means[c], rows.mean(0), rtol=0, atol=1e-6)
        torch.testing.assert_close(
            merged.covariance(c), torch.cov(rows.T, correction=0), rtol=0, atol=1e-5
        )


def test_order_within_a_window_does_not_matter():
    data = shared_domains()
    orders = (sorted, lambda numbers: numbers[::-1])
    both = [Federation(data, steps=(1,), order=order) for order in orders]
    for federation in both:
        federation.collect_statistics(window=8)
    one, two = (federation.server.statistics for federation in both)
    for c in range(CLASSES):
        assert torch.equal(one.covariance(c), two.covariance(c))
        assert torch.equal(one.means[c], two.means[c])


def test_geometry_is_that_of_the_pooled_covariance():
    data = shared_domains()
    federation = Federation(data, steps=(1,))
    federation.collect_statistics()
    shapes = federation.send(federation.augmentation.make_geometry()).shapes
    features, labels = pooled(data)
    assert list(shapes) == list(range(CLASSES))
    for c, shape in shapes.items():
        sigma = torch.cov(features[labels == c].double().T, correction=0)
        basis = shape.basis("covariance").double()
        torch.testing.assert_close(basis.T @ basis, sigma, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["domain", "client"])
@pytest.mark.parametrize("min_samples", [1, 5])
def test_prototypes_are_the_class_means_of_all_others(kind, min_samples):
    data = shared_domains()
    federation = Federation(
        data, steps=(1, 2), prototypes=kind, min_samples=min_samples
    )
    federation.collect_statistics()
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


def test_a_class_of_one_domain_alone_has_no_prototype_there():
    data = make_client_data((20, 30))
    domain, features, labels = data[1]
    data[1] = (domain, features[labels != 3], labels[labels != 3])
    federation = Federation(data, steps=(1, 2))
    federation.collect_statistics()
    assert 3 in federation.augmentation.prototypes(1).labels
    assert 3 not in federation.augmentation.prototypes(2).labels


def rows_of_set(federation, client, label):
    features, labels = federation.clients[client].recipe.draw(1)
    return features[labels == label]


@pytest.mark.parametrize("steps", [(), (1,), (1, 2)])
def test_the_set_that_a_client_trains_on(steps):
    data = shared_domains()
    del data[4]
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


def test_without_steps_nothing_of_the_data_goes_up():
    federation = Federation(make_client_data(), steps=())
    assert not federation.settings.demands.statistics
    federation.round0()
    assert federation.server.statistics.classes == []
    reply = federation.prepare(1)
    assert (reply.aggregation_weight, dict(reply.init_upload)) == (20, {})


def test_rows_that_no_step_enlarges_are_not_copied():
    federation = Federation(make_client_data(), steps=()).round0()
    client = federation.clients[1]
    rows = federation.side(1, TrainingClient)._training_set(1)
    assert rows.features.data_ptr() == client.features.data_ptr()
    drawn = client.recipe.draw(1)
    assert all(map(torch.equal, rows.gathered(), drawn))


def test_a_client_without_data_gets_a_set_of_prototypes_alone():
    data = {**make_client_data((20, 30)), 3: ("domain 3", *NOBODY)}
    federation = Federation(data, steps=(1, 2)).round0()
    for c in range(CLASSES):
        assert len(rows_of_set(federation, 3, c)) == 2 * 5
        for client in (1, 2):
            assert len(rows_of_set(federation, client, c)) >= 12 + 5


def test_a_class_that_a_client_lacks_gets_step_2_rows_only():
    data = make_client_data((20, 30))
    domain, features, labels = data[1]
    data[1] = (domain, features[labels != 3], labels[labels != 3])
    federation = Federation(data, steps=(1, 2)).round0()
    assert len(rows_of_set(federation, 1, 3)) == 5


def test_a_class_that_is_nowhere_stays_nowhere():
    data = {
        k: (domain, features[labels != 2], labels[labels != 2])
        for k, (domain, features, labels) in shared_domains().items()
    }
    federation = Federation(data, steps=(1, 2)).round0()
    assert federation.server.statistics.classes == [0, 1, 3]
    assert list(federation.augmentation.make_geometry().shapes) == [0, 1, 3]
    for k in data:
        assert len(rows_of_set(federation, k, 2)) == 0
    assert torch.isfinite(federation.server.params).all()


def test_one_client_has_no_prototypes_but_its_own_geometry():
    federation = Federation(make_client_data((20,)), steps=(1, 2)).round0()
    assert len(federation.augmentation.prototypes(1).labels) == 0
    for c in range(CLASSES):
        assert len(rows_of_set(federation, 1, c)) == 12


def test_all_below_the_threshold_train_on_their_originals():
    data = make_client_data((8, 10))
    federation = Federation(data, steps=(1, 2), min_samples=100).round0()
    assert federation.augmentation.make_geometry().shapes == {}
    for k, (_, _, labels) in data.items():
        drawn, drawn_labels = federation.clients[k].recipe.draw(1)
        assert len(drawn) == len(labels)
        assert sorted(drawn_labels.tolist()) == sorted(labels.tolist())
    before = federation.server.params
    federation.step(1, federation.train(1))
    assert not torch.equal(federation.server.params, before)


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


@pytest.mark.parametrize("weight", ["augmented", "original"])
def test_weight_counts_the_rows_it_is_said_to_count(weight):
    data = shared_domains()
    federation = Federation(data, steps=(1, 2), weight=weight)
    federation.collect_statistics()
    for k, (_, features, _) in data.items():
        reply = federation.prepare(k)
        trained_on = federation.clients[k].recipe.rows
        assert reply.aggregation_weight == (
            len(features) if weight == "original" else trained_on
        )
        assert trained_on > len(features)


def test_weight_counts_the_rows_that_the_cut_left():
    sizes = PerAnchorSizes(per_sample=10, per_prototype=10, target=15)
    federation = Federation(make_client_data((40, 30)), steps=(1, 2), sizes=sizes)
    federation.round0()
    assert federation.clients[1].recipe.rows == 15 * CLASSES


class TestRefusals:
    def upload(self, federation, client, domain=None):
        data = federation.side(client, StatisticsClient).statistics()
        return StatisticsUpload(client, domain or data.domain, data.statistics)

    def refused(self, federation, uploads, field, sender):
        before = federation.server.statistics.counts.clone()
        with pytest.raises(MessageError, match=f"{sender} refused: field '{field}'"):
            federation.add_statistics(uploads)
        assert torch.equal(federation.server.statistics.counts, before)

    def test_statistics_sent_twice(self):
        federation = Federation(make_client_data(), steps=(1,))
        one, two = self.upload(federation, 1), self.upload(federation, 2)
        federation.add_statistics([one])
        self.refused(federation, [one], "client", "client 1")
        federation.add_statistics([two])

    def test_statistics_of_a_stranger(self):
        federation = Federation(make_client_data(), steps=(1,))
        stranger = StatisticsUpload(9, "art", ClassStatistics.empty(CLASSES, DIM))
        both = [self.upload(federation, 1), stranger]
        self.refused(federation, both, "client", "client 9")

    def test_statistics_of_another_domain(self):
        federation = Federation(make_client_data(), steps=(1,))
        both = [self.upload(federation, 1), self.upload(federation, 2, "elsewhere")]
        self.refused(federation, both, "domain", "client 2")

    def test_replies_of_another_weight_of_a_stranger_or_with_unasked_tensors(self):
        federation = Federation(make_client_data())
        first = PrepareReply(1, 5.0)
        federation.add_prepare_reply(first)
        federation.add_prepare_reply(first)  # of one that came back
        for reply, field in (
            (PrepareReply(1, 6.0), "aggregation_weight"),
            (PrepareReply(9, 5.0), "client"),
            (PrepareReply(2, 5.0, {"a": torch.ones(1)}), "init_upload"),
        ):
            problem = f"client {reply.client} refused: field '{field}'"
            with pytest.raises(MessageError, match=problem):
                federation.add_prepare_reply(reply)
        assert federation.server.aggregation_weights == {1: 5.0}

    def test_a_start_without_everyone(self):
        augmentation = Federation(make_client_data()).augmentation
        augmentation.add_reply(PrepareReply(2, 5.0))
        with pytest.raises(GGEURError, match=r"clients \[1, 3\] are not ready"):
            augmentation.start()

    def test_a_start_without_any_data(self):
        federation = Federation({1: ("a", *NOBODY), 2: ("b", *NOBODY)})
        with pytest.raises(GGEURError, match="no client has any rows to train on"):
            federation.round0()

    def test_training_before_round_0(self):
        federation = Federation(make_client_data())
        with pytest.raises(GGEURError, match=r"client 1 .*before round 0"):
            federation.train(1)
