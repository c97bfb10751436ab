"""Heads: gradients by hand against autograd, initial weights, and the flat vector."""

import copy

import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur.heads import (
    HeadSettings,
    LinearHead,
    MLPHead,
    bind_vector,
    build_head,
    load_vector,
    named_tensors,
    num_parameters,
    split_vector,
    to_vector,
)

DIM, CLASSES = 7, 5
HEADS = {"linear": HeadSettings(), "mlp": HeadSettings(hidden=6)}


@pytest.fixture(params=HEADS)
def head(request):
    head = build_head(DIM, CLASSES, HEADS[request.param])
    return head.reset(torch.Generator().manual_seed(1))


def make_batch(size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(size, DIM, generator=generator)
    return features, torch.randint(CLASSES, (size,), generator=generator)


def autograd_gradient(head, features, labels):
    """The gradient of the mean cross-entropy by autograd in float64, as a vector."""
    double = copy.deepcopy(head).double()
    loss = F.cross_entropy(double(features.double()), labels)
    gradients = torch.autograd.grad(loss, list(double.parameters()))
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.fixture(params=[1, 2, 16])
def batch(request):
    return make_batch(request.param)


class TestGradient:
    def test_equals_autograd_in_float64(self, head, batch):
        into = torch.zeros(num_parameters(head))
        head.gradient_accumulator(into, beta=0.0)(*batch)
        wanted = autograd_gradient(head, *batch)
        torch.testing.assert_close(into.double(), wanted, rtol=1e-5, atol=1e-6)

    def test_without_beta_garbage_is_overwritten(self, head, batch):
        into = torch.full((num_parameters(head),), float("nan"))
        head.gradient_accumulator(into, beta=0.0)(*batch)
        wanted = autograd_gradient(head, *batch)
        torch.testing.assert_close(into.double(), wanted, rtol=1e-5, atol=1e-6)

    def test_beta_keeps_a_share_of_what_was_there(self, head, batch):
        before = torch.randn(num_parameters(head))
        into = before.clone()
        head.gradient_accumulator(into, beta=0.9)(*batch)
        wanted = 0.9 * before.double() + autograd_gradient(head, *batch)
        torch.testing.assert_close(into.double(), wanted, rtol=1e-5, atol=1e-6)

    def test_one_accumulator_takes_batches_of_changing_size(self, head):
        into = torch.zeros(num_parameters(head))
        accumulate = head.gradient_accumulator(into, beta=0.0)
        for size in (8, 8, 3, 1, 8):
            batch = make_batch(size, seed=size)
            accumulate(*batch)
            wanted = autograd_gradient(head, *batch)
            torch.testing.assert_close(into.double(), wanted, rtol=1e-5, atol=1e-6)

    def test_is_taken_at_the_weights_of_the_moment(self, head):
        params = to_vector(head)
        bind_vector(head, params)
        into = torch.zeros_like(params)
        accumulate = head.gradient_accumulator(into, beta=0.0)
        batch = make_batch(8)
        accumulate(*batch)
        params.mul_(-2.0)
        accumulate(*batch)
        wanted = autograd_gradient(head, *batch)
        torch.testing.assert_close(into.double(), wanted, rtol=1e-5, atol=1e-6)

    def test_is_finite_where_a_softmax_would_overflow(self, head):
        load_vector(head, 1e3 * to_vector(head))
        into = torch.zeros(num_parameters(head))
        head.gradient_accumulator(into, beta=0.0)(*make_batch(16))
        assert torch.isfinite(into).all()


class TestReset:
    def test_bounds_are_those_of_torch(self):
        head = build_head(400, 50, HeadSettings(hidden=100))
        head.reset(torch.Generator().manual_seed(3))
        for linear in (head.hidden, head.classifier):
            like_torch = torch.nn.Linear(linear.in_features, linear.out_features)
            bound = linear.in_features**-0.5
            for mine, theirs in zip(linear.parameters(), like_torch.parameters()):
                assert mine.abs().max() <= bound
                assert theirs.abs().max() <= bound
                # Uniform on (-bound, bound), which has this standard deviation.
                spread = bound / 3**0.5
                assert mine.std().item() == pytest.approx(spread, rel=0.25)
                assert theirs.std().item() == pytest.approx(spread, rel=0.25)

    def test_depends_on_the_generator_only(self, head):
        first = to_vector(head)
        torch.manual_seed(99)
        torch.rand(5)
        head.reset(torch.Generator().manual_seed(1))
        assert torch.equal(to_vector(head), first)
        head.reset(torch.Generator().manual_seed(2))
        assert not torch.equal(to_vector(head), first)

    def test_leaves_torchs_global_generator_alone(self, head):
        before = torch.get_rng_state()
        head.reset(torch.Generator().manual_seed(2))
        assert torch.equal(torch.get_rng_state(), before)


class TestVector:
    def test_load_then_read_back(self, head):
        vector = torch.arange(num_parameters(head), dtype=torch.float32)
        load_vector(head, vector)
        assert torch.equal(to_vector(head), vector)

    def test_a_read_vector_is_a_copy(self, head):
        before = to_vector(head)
        to_vector(head).zero_()
        assert torch.equal(to_vector(head), before)

    def test_parts_have_the_shapes_of_the_parameters(self, head):
        vector = torch.arange(num_parameters(head), dtype=torch.float32)
        parts = split_vector(head, vector)
        assert [p.shape for p in parts] == [p.shape for p in head.parameters()]
        assert torch.equal(torch.cat([p.flatten() for p in parts]), vector)

    def test_a_bound_vector_and_the_head_change_together(self, head):
        features, _ = make_batch(4)
        vector = to_vector(head)
        bind_vector(head, vector)
        vector.zero_()
        assert not head(features).any()
        with torch.no_grad():
            next(head.parameters()).fill_(2.0)
        assert (split_vector(head, vector)[0] == 2.0).all()

    def test_named_tensors_are_a_state_dict(self, head):
        vector = torch.arange(num_parameters(head), dtype=torch.float32)
        named = named_tensors(head, vector)
        head.load_state_dict(named)
        assert torch.equal(to_vector(head), vector)
        assert set(named) == set(head.state_dict())


class TestFrozenCopy:
    def test_has_the_given_weights_and_takes_no_gradient(self, head):
        vector = torch.randn(num_parameters(head))
        frozen = head.at(vector)
        assert torch.equal(to_vector(frozen), vector)
        assert not any(p.requires_grad for p in frozen.parameters())
        assert not frozen.training

    def test_neither_follows_the_head_nor_the_vector(self, head):
        features, _ = make_batch(4)
        original, vector = to_vector(head), torch.randn(num_parameters(head))
        bind_vector(head, original)
        frozen = head.at(vector)
        before = frozen(features).clone()
        vector.zero_()
        original.zero_()
        assert torch.equal(frozen(features), before)

    def test_leaves_the_head_as_it_was(self, head):
        before = to_vector(head)
        head.train().at(torch.zeros(num_parameters(head)))
        assert torch.equal(to_vector(head), before)
        assert head.training
        assert all(p.requires_grad for p in head.parameters())


def test_no_hidden_units_means_the_linear_head():
    assert isinstance(build_head(3, 2, HeadSettings(hidden=0)), LinearHead)
    assert isinstance(build_head(3, 2, HeadSettings(hidden=4)), MLPHead)


def test_forward_is_represent_then_classify(head):
    features, _ = make_batch(4)
    assert torch.equal(head(features), head.classify(head.represent(features)))


def test_linear_head_gives_logits_which_are_its_representation():
    head = build_head(DIM, CLASSES, HeadSettings())
    features, _ = make_batch(4)
    weight, bias = head.classifier.weight, head.classifier.bias
    torch.testing.assert_close(head(features), features @ weight.T + bias)
    assert torch.equal(head.represent(features), head(features))


def test_mlp_represents_by_the_hidden_activation_and_drops_after_it():
    head = build_head(DIM, CLASSES, HeadSettings(hidden=6, dropout=0.5)).train()
    features, _ = make_batch(4)
    hidden = head.represent(features)
    assert hidden.shape == (4, 6)
    assert (hidden >= 0).all()
    assert torch.equal(hidden, head.represent(features))
    assert not torch.equal(head.classify(hidden), head.classify(hidden))
    head.eval()
    assert torch.equal(head.classify(hidden), head.classify(hidden))
