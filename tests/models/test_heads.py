"""Heads: gradients by hand against autograd, initial weights, and the flat vector."""

import copy

import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur.models import (
    LinearHead,
    MLPHead,
    Model,
    ModelSettings,
    bind_vector,
    build_model,
    load_vector,
    num_parameters,
    split_vector,
    to_vector,
)

DIM, CLASSES = 7, 5
MODELS = {"linear": ModelSettings(), "mlp": ModelSettings(hidden=6)}


@pytest.fixture(params=MODELS)
def model(request):
    model = build_model(DIM, CLASSES, MODELS[request.param])
    return model.reset(torch.Generator().manual_seed(1))


def make_batch(size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(size, DIM, generator=generator)
    return features, torch.randint(CLASSES, (size,), generator=generator)


def autograd_gradient(model, features, labels):
    """The gradient of the mean cross-entropy by autograd in float64, as a vector."""
    double = copy.deepcopy(model).double()
    loss = F.cross_entropy(double(features.double()), labels)
    gradients = torch.autograd.grad(loss, list(double.parameters()))
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.fixture(params=[1, 2, 16])
def batch(request):
    return make_batch(request.param)


class TestGradient:
    def test_equals_autograd_in_float64(self, model, batch):
        # One accumulator takes batches of any size, whatever lay there before.
        into = torch.full((num_parameters(model),), float("nan"))
        accumulate = model.gradient_accumulator(into, beta=0.0)
        for rows in (batch, make_batch(8), batch, make_batch(3)):
            accumulate(*rows)
            wanted = autograd_gradient(model, *rows)
            torch.testing.assert_close(into.double(), wanted, rtol=1e-5, atol=1e-6)

    def test_beta_keeps_a_share_of_what_was_there(self, model, batch):
        before = torch.randn(num_parameters(model))
        into = before.clone()
        model.gradient_accumulator(into, beta=0.9)(*batch)
        wanted = 0.9 * before.double() + autograd_gradient(model, *batch)
        torch.testing.assert_close(into.double(), wanted, rtol=1e-5, atol=1e-6)

    def test_is_taken_at_the_weights_of_the_moment(self, model):
        params = to_vector(model)
        bind_vector(model, params)
        into = torch.zeros_like(params)
        accumulate = model.gradient_accumulator(into, beta=0.0)
        batch = make_batch(8)
        accumulate(*batch)
        params.mul_(-2.0)
        accumulate(*batch)
        wanted = autograd_gradient(model, *batch)
        torch.testing.assert_close(into.double(), wanted, rtol=1e-5, atol=1e-6)

    def test_is_finite_where_a_softmax_would_overflow(self, model):
        load_vector(model, 1e3 * to_vector(model))
        into = torch.zeros(num_parameters(model))
        model.gradient_accumulator(into, beta=0.0)(*make_batch(16))
        assert torch.isfinite(into).all()


class TestReset:
    def test_bounds_are_those_of_torch(self):
        model = build_model(400, 50, ModelSettings(hidden=100))
        model.reset(torch.Generator().manual_seed(3))
        for linear in (model.hidden, model.classifier):
            like_torch = torch.nn.Linear(linear.in_features, linear.out_features)
            bound = linear.in_features**-0.5
            for mine, theirs in zip(linear.parameters(), like_torch.parameters()):
                assert mine.abs().max() <= bound
                assert theirs.abs().max() <= bound
                # Uniform on (-bound, bound), which has this standard deviation.
                spread = bound / 3**0.5
                assert mine.std().item() == pytest.approx(spread, rel=0.25)
                assert theirs.std().item() == pytest.approx(spread, rel=0.25)

    def test_depends_on_the_generator_only(self, model):
        first = to_vector(model)
        torch.manual_seed(99)
        torch.rand(5)
        state = torch.get_rng_state()
        model.reset(torch.Generator().manual_seed(1))
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(to_vector(model), first)
        model.reset(torch.Generator().manual_seed(2))
        assert not torch.equal(to_vector(model), first)


class TestVector:
    def test_a_read_vector_is_a_copy(self, model):
        before = to_vector(model)
        to_vector(model).zero_()
        assert torch.equal(to_vector(model), before)

    def test_a_bound_vector_and_the_head_change_together(self, model):
        features, _ = make_batch(4)
        vector = to_vector(model)
        bind_vector(model, vector)
        vector.zero_()
        assert not model(features).any()
        with torch.no_grad():
            next(model.parameters()).fill_(2.0)
        assert (split_vector(model, vector)[0] == 2.0).all()


class TestFrozenCopy:
    def test_has_the_given_weights_and_takes_no_gradient(self, model):
        vector = torch.randn(num_parameters(model))
        frozen = model.at(vector)
        assert torch.equal(to_vector(frozen), vector)
        assert not any(p.requires_grad for p in frozen.parameters())
        assert not frozen.training

    def test_neither_follows_the_head_nor_the_vector(self, model):
        features, _ = make_batch(4)
        original, vector = to_vector(model), torch.randn(num_parameters(model))
        bind_vector(model, original)
        frozen = model.at(vector)
        before = frozen(features).clone()
        vector.zero_()
        original.zero_()
        assert torch.equal(frozen(features), before)

    def test_leaves_the_head_as_it_was(self, model):
        before = to_vector(model)
        model.train().at(torch.zeros(num_parameters(model)))
        assert torch.equal(to_vector(model), before)
        assert model.training
        assert all(p.requires_grad for p in model.parameters())


def test_no_hidden_units_means_the_linear_head():
    assert isinstance(build_model(3, 2, ModelSettings(hidden=0)), LinearHead)
    assert isinstance(build_model(3, 2, ModelSettings(hidden=4)), MLPHead)


def test_forward_is_represent_then_classify(model):
    features, _ = make_batch(4)
    assert torch.equal(model(features), model.classify(model.represent(features)))


def test_linear_head_gives_logits_which_are_its_representation():
    model = build_model(DIM, CLASSES, ModelSettings())
    features, _ = make_batch(4)
    weight, bias = model.classifier.weight, model.classifier.bias
    torch.testing.assert_close(model(features), features @ weight.T + bias)
    assert torch.equal(model.represent(features), model(features))


def test_mlp_represents_by_the_hidden_activation_and_drops_after_it():
    model = build_model(DIM, CLASSES, ModelSettings(hidden=6, dropout=0.5)).train()
    features, _ = make_batch(4)
    hidden = model.represent(features)
    assert hidden.shape == (4, 6)
    assert (hidden >= 0).all()
    assert torch.equal(hidden, model.represent(features))
    assert not torch.equal(model.classify(hidden), model.classify(hidden))
    model.eval()
    assert torch.equal(model.classify(hidden), model.classify(hidden))


def test_published_probabilities_have_a_share_of_equal_ones():
    """So no row has a larger log-loss than -log(0.001 / C)."""
    logits = torch.tensor([[1e4, 0.0, -1e4, 0.0], [0.0, 0.0, 0.0, 0.0]])
    found = Model.probabilities(logits)
    least = 0.001 / 4
    torch.testing.assert_close(found[0], torch.tensor([0.999 + least, *[least] * 3]))
    torch.testing.assert_close(found[1], torch.full((4,), 0.25))
