"""Round 0 of client and server together: statistics, geometry, prototypes, sets.

Tests of federation/prototypes.py and federation/global_shapes.py.
"""

import pytest
import torch
from by_bytes import CLASSES, DIM, Federation, make_client_data, make_rows

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.exchanges.augmentation.messages import PrepareReply
from federatedscope_ggeur.federation.exchanges.training.fit import training_sets
from federatedscope_ggeur.geometry import PerAnchorSizes

NOBODY = (torch.zeros(0, DIM), torch.zeros(0, dtype=torch.int64))


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
    merged = federation.server.merged.statistics
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
@pytest.mark.parametrize("domains", [shared_domains, uneven_domains])
def test_prototypes_are_the_class_means_of_all_others(kind, min_samples, domains):
    data = domains()
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
    reply = federation.prepare(1)
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


def test_a_start_without_everyone_is_refused():
    augmentation = Federation(make_client_data()).augmentation
    augmentation.add_reply(PrepareReply(2, 5.0))
    with pytest.raises(GGEURError, match=r"clients \[1, 3\] are not ready"):
        augmentation.start()


def test_a_start_without_any_data_is_refused():
    federation = Federation({1: ("a", *NOBODY), 2: ("b", *NOBODY)})
    with pytest.raises(GGEURError, match="no client has any rows to train on"):
        federation.round0()


def test_training_before_round_0_is_refused():
    federation = Federation(make_client_data())
    with pytest.raises(GGEURError, match=r"client 1 .*before round 0"):
        federation.train(1)
