"""The method interface serves the literature: small methods run over bytes."""

import pytest
import torch
from by_bytes import Federation, make_client_data
from example_methods import (
    FedDyn,
    FedFA,
    FedMix,
    FedNTD,
    FedOpt,
    FedProto,
    FedProx,
    Moon,
    Scaffold,
)

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.heads import HeadSettings
from federatedscope_ggeur.methods import FedAvg, LocalHooks

METHODS = {
    "fedprox": FedProx(0.5),
    "scaffold": Scaffold(0.5),
    "feddyn": FedDyn(0.5),
    "moon": Moon(1.0),
    "fedntd": FedNTD(1.0),
    "fedproto": FedProto(2.0),
    "fedopt": FedOpt(0.5, momentum=0.9),
    "fedmix": FedMix(0.1),
    "fedfa": FedFA(0.5),
}
HEADS = {"linear": HeadSettings(), "mlp": HeadSettings(hidden=6, dropout=0.2)}
MOMENTUM = OptimizerSettings("SGD", 0.05, {"momentum": 0.9, "weight_decay": 1e-3})


def federate(method, rounds=3, sizes=(20, 30, 25), **options):
    options.setdefault("training", TrainingSettings(MOMENTUM, 2, "epoch", 8))
    federation = Federation(make_client_data(sizes), method, **options)
    federation.weights = federation.run(rounds)
    return federation


@pytest.fixture(params=HEADS)
def head(request):
    return HEADS[request.param]


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
class TestEveryMethod:
    def test_runs_and_differs_from_fedavg(self, method, head):
        weights = federate(method, head=head).weights
        plain = federate(FedAvg(), head=head).weights
        assert torch.isfinite(weights).all()
        assert torch.equal(weights[0], plain[0])
        assert (weights[-1] - plain[-1]).abs().max() > 1e-4

    def test_serves_augmentation_sampling_and_clients_without_data(self, method, head):
        options = {
            "sizes": (20, 0, 30, 3, 25),
            "steps": (1, 2),
            "sample_client_num": 3,
            "min_samples": 5,
            "head": head,
        }
        weights = federate(method, **options).weights
        assert torch.isfinite(weights).all()
        assert not torch.equal(weights[-1], weights[0])
        torch.manual_seed(5)
        backwards = federate(method, order=lambda ks: ks[::-1], **options).weights
        assert torch.equal(backwards, weights)

    def test_serves_batch_mode_and_clipping(self, method, head):
        training = TrainingSettings(MOMENTUM, 4, "batch", 8, grad_clip=0.1)
        weights = federate(method, head=head, training=training).weights
        assert torch.isfinite(weights).all()


@pytest.mark.parametrize(
    "method", [FedProx(0.0), Moon(0.0), FedNTD(0.0), FedProto(0.0)]
)
def test_a_term_of_weight_zero_is_fedavg_to_the_bit(method, head):
    plain = federate(FedAvg(), head=head).weights
    assert torch.equal(federate(method, head=head).weights, plain)


@pytest.mark.parametrize("method", [FedOpt(1.0), FedMix(0.0), FedFA(0.0)])
def test_neutral_settings_are_fedavg_to_rounding(method, head):
    plain = federate(FedAvg(), head=head).weights
    weights = federate(method, head=head).weights
    torch.testing.assert_close(weights, plain, rtol=0, atol=2e-6)


def test_fedprox_stays_near_where_it_started():
    def moved(mu):
        weights = federate(FedProx(mu), rounds=1).weights
        return (weights[1] - weights[0]).norm()

    assert moved(5.0) < 0.5 * moved(0.0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaffold_of_one_client_is_sgd(momentum):
    sgd = OptimizerSettings("SGD", 0.05, {"momentum": momentum})
    options = {"sizes": (30,), "training": TrainingSettings(sgd, 2, "epoch", 8)}
    plain = federate(FedAvg(), **options).weights
    weights = federate(Scaffold(), **options).weights
    torch.testing.assert_close(weights, plain, rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    ("method", "name"),
    [(Scaffold(), "c"), (FedDyn(0.5), "h")],
    ids=["scaffold", "feddyn"],
)
@pytest.mark.parametrize("drawn", [2, 4])
def test_servers_state_is_the_mean_of_the_clients(method, name, drawn):
    federation = federate(
        method, rounds=5, sizes=(20, 30, 0, 25), sample_client_num=drawn
    )
    weights = {1: 20 / 75, 2: 30 / 75, 3: 0.0, 4: 25 / 75}
    held = {k: client.state for k, client in federation.clients.items()}
    mean = sum(weights[k] * held[k][name] for k in held if name in held[k])
    assert mean.abs().max() > 1e-3
    torch.testing.assert_close(
        federation.server.method_state[name], mean, rtol=1e-4, atol=1e-5
    )


def test_feddyn_of_everyone_doubles_the_first_step():
    federation = Federation(make_client_data(), FedDyn(0.5), ignore_weight=True)
    federation.round0()
    start, updates = federation.server.params, federation.train(1)
    federation.server.step(1, updates)
    mean = torch.stack([u.params for u in updates]).mean(dim=0)
    torch.testing.assert_close(federation.server.params, 2 * mean - start)


def test_moon_remembers_the_clients_own_last_weights(head):
    plain = federate(FedAvg(), head=head).weights
    federation = federate(Moon(1.0), head=head)
    assert torch.equal(federation.weights[1], plain[1])
    assert not torch.equal(federation.weights[2], plain[2])
    for client in federation.clients.values():
        assert client.state["params"].shape == plain[0].shape


def test_fedntd_has_no_say_with_two_classes():
    plain = federate(FedAvg(), classes=4).weights
    assert (federate(FedNTD(1.0)).weights - plain).abs().max() > 1e-4
    data = {
        k: (domain, features, labels % 2)
        for k, (domain, features, labels) in make_client_data().items()
    }
    both = [
        Federation(data, method, classes=2).run(2) for method in (FedAvg(), FedNTD(1.0))
    ]
    torch.testing.assert_close(both[0], both[1], rtol=0, atol=1e-6)


def test_fedproto_sends_class_means_of_the_representation_both_ways(head):
    federation = Federation(make_client_data(), FedProto(2.0), head=head).round0()
    updates = federation.train(1)
    federation.server.step(1, updates)
    total, count = 0.0, 0
    for update in updates:
        client = federation.clients[update.client]
        z = client.head.at(update.params).represent(client.features)
        total = total + z[client.labels == 2].sum(dim=0)
        count += int((client.labels == 2).sum())
    received = federation.send(federation.server.broadcast(2)).download
    torch.testing.assert_close(received["prototypes"][2], total / count)
    assert received["known"].tolist() == [1, 1, 1, 1]


def test_fedproto_keeps_to_the_floor():
    data = make_client_data((40, 40))
    domain, features, labels = data[1]
    few = torch.cat([torch.nonzero(labels != 2).flatten(), torch.tensor([0])])
    labels = labels.clone()
    labels[0] = 2
    data[1] = (domain, features[few], labels[few])
    options = {"steps": (1, 2), "min_samples": 5}
    federation = Federation(data, FedProto(2.0), **options).round0()
    first, second = (update.upload for update in federation.train(1))
    assert first["counts"][2] == 0
    assert not first["means"][2].any()
    assert second["counts"][2] > 0


def test_fedmix_shares_means_of_at_least_min_samples_rows():
    federation = Federation(make_client_data((20, 3, 31)), FedMix(0.1), min_samples=5)
    federation.round0()
    features = federation.clients[1].features
    shared = federation.send(federation.server.start())
    assert shared.tensors["features"].shape[0] == 4 + 0 + 6
    assert shared.tensors["labels"].sum().item() == pytest.approx(10)
    torch.testing.assert_close(shared.tensors["features"][0], features[:5].mean(dim=0))


def test_context_tells_the_clients_own_counts():
    seen = {}

    class Look(FedAvg):
        def local(self, context):
            seen[context.client] = context
            return LocalHooks()

    federation = federate(Look(), rounds=1, steps=(1, 2), min_samples=3)
    for k, client in federation.clients.items():
        counts = [(client.labels == c).sum().item() for c in range(4)]
        assert seen[k].counts.tolist() == counts
        assert (seen[k].round_number, seen[k].min_samples) == (1, 3)
        assert seen[k].optimizer is MOMENTUM


class Leak(FedAvg):
    """Shares label counts that the server alone may see."""

    seen = None

    def share_shapes(self, head):
        return {"counts": (head.num_classes,)}

    def share(self, features, labels, context):
        return {"counts": context.counts}

    def initial_state(self, params, context):
        self.seen = context
        return {}


def test_what_is_shared_stays_on_the_server_unless_combined():
    method = Leak()
    federation = federate(method, rounds=1)
    assert federation.server.start() is None
    for k, client in federation.clients.items():
        counts = torch.bincount(client.labels, minlength=4)
        assert torch.equal(method.seen.shares[k]["counts"], counts)
    first, again = (method.seen.generator("g").initial_seed() for _ in range(2))
    assert first == again != method.seen.generator("h").initial_seed()


@pytest.mark.parametrize(
    ("spoilt", "field"),
    [
        ({}, "upload"),
        ({"d": torch.zeros(28)}, "upload"),
        ({"c": torch.zeros(28), "d": torch.zeros(28)}, "upload"),
        ({"c": torch.zeros(1)}, "upload.c"),
        ({"c": torch.zeros(28, 1)}, "upload.c"),
    ],
)
def test_an_upload_of_other_names_or_shapes_is_refused(spoilt, field):
    federation = Federation(make_client_data(), Scaffold()).round0()
    updates = federation.train(1)
    assert updates[0].upload["c"].shape == (28,)
    object.__setattr__(updates[1], "upload", spoilt)
    with pytest.raises(MessageError, match=f"client 2 refused: field '{field}'"):
        federation.server.step(1, updates)


def test_a_share_of_another_shape_is_refused():
    federation = Federation(make_client_data(), FedMix(0.1))
    ready = federation.prepare(1)
    ready.shared["features"] = torch.zeros(3, 1)
    with pytest.raises(
        MessageError, match=r"client 1 .*'shared\.features'.*\(any, 6\)"
    ):
        federation.server.add_ready(ready)
