"""A base method and a augmentation in one: what each sees, and what comes of both.

What every method shares: FedAvg at weight zero and before there is anything to
compare with, and rounds that have nothing to say.
"""

from functools import cache

import pytest
import torch
from by_bytes import Federation, eval_params_of, make_client_data
from by_numpy import World
from every_method import ADDED, FEDERATED, SETTINGS
from federations import MODELS, federate, federate_tiny

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods import (
    FPL,
    METHODS,
    Batch,
    Combined,
    FedAvg,
    FedAvgM,
    FedFA,
    FedGen,
    FedMix,
    FedNTD,
    FedOpt,
    FedProto,
    FedProx,
    FedSAM,
    LocalHooks,
    Moon,
    TensorSpec,
    build_method,
)

#: Clients that are drawn some rounds only, one without data, one below the threshold.
HARD = {"sizes": (20, 0, 30, 3, 25), "sample_client_num": 3, "min_samples": 2}


@cache
def run(base, added=None, model=MODELS["mlp"]):
    """The federation of a method, or of two in one, after three rounds."""
    method = base if added is None else Combined(base, added)
    return federate(method, model=model, **HARD)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("added", ADDED.values(), ids=ADDED)
def test_beside_fedavg_the_numbers_are_the_augmentations_own(added, model):
    alone, both = run(added, model=model), run(FEDERATED["fedavg"], added, model)
    assert torch.equal(both.weights, alone.weights)
    assert not torch.equal(both.weights, run(FEDERATED["fedavg"], model=model).weights)
    for name, tensor in alone.server.method_state.items():
        assert torch.equal(both.server.method_state[f"augmentation.{name}"], tensor)


class Spy(FedAvg):
    """Notes what it is given; numbers of its own travel each way and are kept."""

    def __init__(self, number):
        self.number, self.seen = number, []

    def one(self):
        return {"x": torch.tensor([float(self.number)])}

    def note(self, *dicts):
        self.seen += [{n: t.tolist() for n, t in d.items()} for d in dicts]

    def init_upload_shapes(self, model):
        return {"x": TensorSpec((1,))}

    upload_shapes = init_upload_shapes

    def init_upload(self, features, labels, context):
        self.note(context.download, context.init_broadcast, context.state)
        return self.one()

    def aggregate_init(self, init_uploads):
        self.note(*init_uploads.values())
        return self.one()

    def initial_state(self, params, context):
        self.note(*context.init_uploads.values())
        return self.one()

    def download(self, state):
        self.note(state)
        return state

    def local(self, context):
        self.note(context.download, context.init_broadcast, context.state)
        number = self.number
        return LocalHooks(
            transform=lambda x, y: x * number + y[:, None],
            loss_term=lambda model, batch: number * batch.logits.mean(),
            add_correction=lambda params, gradient: gradient.add_(number * params),
            finish=lambda outcome: (self.one(), self.one()),
        )

    def step(self, params, updates, state, context):
        self.note(state, *(u.upload for u in updates), *context.init_uploads.values())
        return params + self.number, {"x": state["x"]}


class TestWhatEachSees:
    def test_is_its_own(self):
        base, added = Spy(2), Spy(3)
        federation = Federation(make_client_data(), Combined(base, added))
        federation.run(2)
        for spy in (base, added):
            # Nothing down in round 0, nor kept by a client before its first round.
            assert {str(seen) for seen in spy.seen} == {
                "{}",
                f"{{'x': [{spy.number}.0]}}",
            }
        assert len(base.seen) == len(added.seen)

    def test_the_next_weights_are_the_base_methods(self):
        federation = Federation(make_client_data(), Combined(Spy(2), Spy(3)))
        weights = federation.run(1)
        torch.testing.assert_close(weights[1], weights[0] + 2)

    def test_what_each_finds_wrong_is_wrong_for_both(self):
        class Refuses(Spy):
            name = "picky"

            def init_upload_problem(self, init_upload, model):
                assert init_upload == self.one()
                return f"no {self.number}"

            upload_problem = init_upload_problem

        for base, added, found in (
            (Spy(2), Spy(3), ""),
            (Refuses(2), Spy(3), "picky: no 2"),
            (Spy(2), Refuses(3), "picky: no 3"),
        ):
            both, model = Combined(base, added), object()
            sent = {"base.x": base.one()["x"], "augmentation.x": added.one()["x"]}
            assert both.init_upload_problem(sent, model) == found
            assert both.upload_problem(sent, model) == found


def hooks_of(*methods):
    """The hooks of two methods in one, and the client that they are of."""
    federation = Federation(make_client_data(), Combined(*methods)).round0()
    client = federation.clients[1]
    broadcast = federation.send(federation.broadcast(1))
    context = client.context(1, broadcast.params, broadcast.download)
    return federation.settings.task.method.local(context), client


class TestHooks:
    def test_terms_add_up_and_corrections_and_transforms_follow(self):
        both, client = hooks_of(Spy(2), Spy(3))
        x, y = client.features[:4], client.labels[:4]
        assert torch.equal(both.transform(x, y), 3 * (2 * x + y[:, None]) + y[:, None])
        z = client.model(x).detach()
        batch = Batch(x, y, z, z)
        torch.testing.assert_close(both.loss_term(client.model, batch), 5 * z.mean())
        params, gradient = torch.arange(4.0), torch.ones(4)
        both.add_correction(params, gradient)
        assert torch.equal(gradient, 1 + 5 * params)

    def test_where_to_start_and_what_to_score_is_the_base_methods(self):
        class Own(FedAvg):
            def local(self, context):
                def finish(outcome):
                    return {}, {"params": outcome.params}

                return LocalHooks(start=self.eval_params(context), finish=finish)

            def eval_params(self, context):
                return context.state.get("params", context.broadcast)

        own, both = run(Own()), run(Own(), ADDED["fedfa"])
        assert not torch.equal(own.weights, run(FEDERATED["fedavg"]).weights)
        assert torch.equal(run(Own(), FedFA(0.0)).weights, own.weights)
        last = both.send(both.broadcast(3))
        trained = [client for client in both.clients.values() if client.state]
        assert trained
        for client in trained:
            kept = client.state["base.params"]
            assert torch.equal(eval_params_of(client, last), kept)

    @pytest.mark.parametrize(
        "hook",
        ["transform", "objective", "loss_term", "add_correction", "perturb", "stage"],
    )
    def test_what_one_alone_has_is_the_hook_of_both(self, hook):
        class Own(FedAvg):
            def local(self, context):
                return LocalHooks(**{hook: print})

        for pair in ((Own(), FedAvg()), (FedAvg(), Own())):
            assert getattr(hooks_of(*pair)[0], hook) is print

    @pytest.mark.parametrize(
        ("added", "hook", "said"),
        [
            (FedMix(0.3, 3), "objective", "both replace the cross-entropy"),
            (None, "perturb", "both move the weights before taking the gradient"),
        ],
    )
    def test_two_of_what_there_can_be_one_are_refused(self, added, hook, said):
        class Other(FedAvg):
            name = "other"

            def local(self, context):
                return LocalHooks(**{hook: lambda *given: None})

        with pytest.raises(ConfigError, match=rf"other \+ \w+: {said}"):
            hooks_of(Other(), added or Other())


#: FedAvg to the bit, or as far as another order of sums allows.
NEUTRAL = [
    *((method, 0) for method in (FedProx(0.0), Moon(0.0), FedNTD(0.0), FedProto(0.0))),
    *((method, 0) for method in (FPL(strength=0.0), FedGen(0.0), FedFA(0.0))),
    (FedSAM(rho=0.0), 0),
    (FedOpt("SGD", 1.0), 1e-6),
    (FedAvgM(momentum=0.0, lr=1.0), 1e-6),
    (FedMix(0.0), 1e-6),
]


#: One model says most.
EITHER = ["mlp", "linear"]


@cache
def fedavg(model, sizes=(20, 30, 25), **options):
    """FedAvg's weights after each round."""
    return federate(FedAvg(), model=MODELS[model], sizes=sizes, **options).weights


@pytest.mark.parametrize("model", EITHER)
@pytest.mark.parametrize(
    ("method", "tolerance"), NEUTRAL, ids=lambda given: getattr(given, "name", "")
)
def test_a_term_of_weight_zero_is_fedavg(method, tolerance, model):
    options = {"rounds": 2, "sizes": (20, 0, 30, 25)}
    found = federate(method, model=MODELS[model], **options).weights
    assert (found - fedavg(model, **options)).abs().max() <= tolerance


@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("name", METHODS)
def test_a_round_of_clients_without_data_changes_nothing(name, hidden):
    everyone = (1, 2, 3, 4)
    method = build_method(name, **SETTINGS.get(name, {}))
    world = World((everyone, (3,), everyone), hidden)
    weights = federate_tiny(method, world).weights
    assert torch.equal(weights[2], weights[1])
    without = federate_tiny(method, World((everyone, everyone), hidden)).weights
    assert torch.equal(weights[3], without[2])
