"""The method interface serves the literature: methods run over bytes."""

import pytest
import torch
from by_bytes import Federation, make_client_data
from every_method import ADDED, OTHERS
from federations import MODELS, MOMENTUM, federate

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.methods import (
    FedAvg,
    LocalHooks,
    Scaffold,
    TensorSpec,
)

METHODS = {**OTHERS, **ADDED}


@pytest.fixture
def model():
    return MODELS["mlp"]


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
class TestEveryMethod:
    def test_runs_and_differs_from_fedavg(self, method, model):
        weights = federate(method, model=model).weights
        plain = federate(FedAvg(), model=model).weights
        assert torch.isfinite(weights).all()
        assert torch.equal(weights[0], plain[0])
        assert (weights[-1] - plain[-1]).abs().max() > 1e-4

    @pytest.mark.slow
    def test_serves_augmentation_sampling_and_clients_without_data(self, method, model):
        options = {
            "sizes": (20, 0, 30, 3, 25),
            "steps": (1, 2),
            "sample_client_num": 3,
            "min_samples": 5,
            "model": model,
        }
        weights = federate(method, **options).weights
        assert torch.isfinite(weights).all()
        assert not torch.equal(weights[-1], weights[0])
        torch.manual_seed(5)
        backwards = federate(method, order=lambda ks: ks[::-1], **options).weights
        assert torch.equal(backwards, weights)


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

    def init_upload_shapes(self, model):
        return {"counts": TensorSpec((model.num_classes,), torch.int64)}

    def init_upload(self, features, labels, context):
        return {"counts": context.counts}

    def initial_state(self, params, context):
        self.seen = context
        return {}


def test_what_is_sent_once_stays_on_the_server_unless_combined():
    method = Leak()
    federation = federate(method, rounds=1)
    assert federation.augmentation.start() is None
    for k, client in federation.clients.items():
        counts = torch.bincount(client.labels, minlength=4)
        assert torch.equal(method.seen.init_uploads[k]["counts"], counts)
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
        federation.step(1, updates)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_tensor_of_another_dtype_is_refused(method, model):
    """One float64 among them would make the sums over all clients float64."""
    federation = Federation(make_client_data(), method, model=model)
    reply = federation.prepare(1)
    for field in other_dtypes(reply.init_upload):
        with pytest.raises(
            MessageError, match=rf"'init_upload\.{field}': expected torch"
        ):
            federation.add_prepare_reply(reply)
    updates = federation.round0().train(1)
    for field in other_dtypes(updates[1].upload):
        with pytest.raises(MessageError, match=rf"'upload\.{field}': expected torch"):
            federation.step(1, updates)
    federation.step(1, updates)


def other_dtypes(tensors):
    """The names of `tensors`; while one is up, that one is of another dtype."""
    others = {torch.float32: torch.float64, torch.int64: torch.float32}
    for name, right in dict(tensors).items():
        tensors[name] = right.to(others[right.dtype])
        yield name
        tensors[name] = right
