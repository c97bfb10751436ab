"""Heads: gradients by hand against autograd, initial weights, and the flat vector."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.geometry import Space, Totals
from federatedscope_ggeur.models import (
    LinearHead,
    MixtureHead,
    MLPHead,
    Model,
    ModelSettings,
    bind_vector,
    build_model,
    fold,
    load_vector,
    named_tensors,
    num_parameters,
    split_vector,
    to_vector,
    unfold,
)
from federatedscope_ggeur.models.folding import (
    AverageHead,
    Averaging,
    averaged,
    calibrated,
    recast,
)
from federatedscope_ggeur.models.heads import Dropout

DIM, CLASSES = 7, 5
MODELS = {"linear": ModelSettings(), "mlp": ModelSettings(hidden=6)}


@pytest.fixture(params=MODELS)
def model(request):
    model = build_model(DIM, CLASSES, MODELS[request.param])
    return model.reset(torch.Generator().manual_seed(1))


def make_batch(size):
    generator = torch.Generator().manual_seed(0)
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
    @pytest.mark.parametrize(("beta", "first"), [(0.0, float("nan")), (0.9, 2.0)])
    def test_equals_autograd_in_float64(self, model, batch, beta, first):
        # One accumulator takes batches of any size; beta keeps a share of what was
        # there, and none at 0.
        into = torch.full((num_parameters(model),), first)
        accumulate = model.gradient_accumulator(into, beta)
        for rows in (batch, make_batch(8), batch, make_batch(3)):
            kept = beta * into.double() if beta else 0
            accumulate(*rows)
            wanted = kept + autograd_gradient(model, *rows)
            torch.testing.assert_close(into.double(), wanted, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("offsets", [False, True])
    @pytest.mark.parametrize("dropout", [0.0, 0.4])
    @pytest.mark.parametrize("beta", [0.0, 0.9])
    def test_an_mlps_has_autograd_s_bits(self, batch, beta, dropout, offsets):
        """By hand, and as of any other model, with the same units dropped."""
        if offsets:
            beside = torch.randn(len(batch[0]), CLASSES)
            batch = torch.cat([batch[0], beside], dim=1), batch[1]
        model = MLPHead(DIM, CLASSES, 24, dropout).reset(torch.Generator())
        before, found = torch.randn(num_parameters(model)), []
        for kind in (MLPHead, Model):
            into = before.clone()
            model.dropout.generator = torch.Generator().manual_seed(5)
            accumulate = kind.gradient_accumulator(model, into, beta)
            accumulate(*batch)
            accumulate(*make_batch(8))
            found.append(into)
        assert torch.equal(*found)

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
    def test_is_torch_s_uniform_between_bounds(self):
        model = build_model(400, 50, ModelSettings(hidden=100))
        model.reset(torch.Generator().manual_seed(3))
        for linear in (model.hidden, model.classifier):
            like_torch = nn.Linear(linear.in_features, linear.out_features)
            bound = linear.in_features**-0.5
            for one in (*linear.parameters(), *like_torch.parameters()):
                assert one.abs().max() <= bound
                assert one.std().item() == pytest.approx(bound / 3**0.5, rel=0.25)

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
    def test_has_the_given_weights_and_leaves_the_head_as_it_was(self, model):
        before, vector = to_vector(model), torch.randn(num_parameters(model))
        frozen = model.train().at(vector)
        assert torch.equal(to_vector(frozen), vector)
        assert torch.equal(to_vector(model), before)
        for one, trains in ((frozen, False), (model, True)):
            assert {p.requires_grad for p in one.parameters()} == {trains}
            assert one.training == trains

    def test_neither_follows_the_head_nor_the_vector(self, model):
        features, _ = make_batch(4)
        original, vector = to_vector(model), torch.randn(num_parameters(model))
        bind_vector(model, original)
        frozen = model.at(vector)
        before = frozen(features).clone()
        vector.zero_()
        original.zero_()
        assert torch.equal(frozen(features), before)


def test_forward_is_represent_then_classify(model):
    features, _ = make_batch(4)
    assert torch.equal(model(features), model.classify(model.represent(features)))


def test_linear_head_gives_logits_which_are_its_representation():
    model = build_model(DIM, CLASSES, ModelSettings())
    assert isinstance(model, LinearHead)
    features, _ = make_batch(4)
    weight, bias = model.classifier.weight, model.classifier.bias
    torch.testing.assert_close(model(features), features @ weight.T + bias)
    assert torch.equal(model.represent(features), model(features))


def test_mlp_represents_by_the_hidden_activation_and_drops_after_it():
    model = build_model(DIM, CLASSES, ModelSettings(hidden=6, dropout=0.5)).train()
    assert isinstance(model, MLPHead)
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


# The mean of two heads' probabilities, in plain numpy; as vectors and state dicts.


@pytest.mark.parametrize("hidden", [0, 5])
def test_is_the_mean_of_both_and_either_alone(hidden):
    generator = torch.Generator().manual_seed(0)
    last = (MLPHead(4, 3, hidden) if hidden else LinearHead(4, 3)).reset(generator)
    mixture = MixtureHead.of_components(
        torch.randn(5, 4), torch.randn(5), torch.tensor([0, 0, 1, 2, 2]), 3
    )
    x = torch.randn(6, 4, generator=generator)
    wanted = AverageHead(4, 3, hidden)
    vectors = []
    with_offsets = hidden > 0
    for head, trained in ((mixture, False), (last, True)):
        vector = recast(head, to_vector(head), wanted, trained)
        alone = wanted.at(vector)(x).softmax(dim=1)
        assert torch.allclose(alone, head(x).softmax(dim=1), atol=1e-6)
        cooled = wanted.at(vector)
        assert cooled.can_cool
        cooled.cool(2.0)
        divided = (head(x) / 2).softmax(dim=1)
        assert torch.allclose(cooled(x).softmax(dim=1), divided, atol=1e-6)
        vectors.append(vector)
    averaging = Averaging(with_offsets=with_offsets)
    mean = averaged(wanted, *vectors, averaging)
    one, other = mixture(x).detach(), last(x).detach()
    if with_offsets:
        offsets = torch.log(0.999 * one.softmax(1) + 0.001 / 3) / 2
        beside = last(torch.cat([x, offsets], dim=1)).detach()
        other = other + offsets
        assert torch.allclose(beside, other)
    expected = np.mean([one.softmax(1), other.softmax(1)], axis=0)
    assert np.allclose(wanted.at(mean)(x).exp().detach(), expected, atol=1e-6)
    load_vector(wanted, mean)
    again = AverageHead(4, 3, hidden)
    again.load_state_dict(wanted.state_dict())
    assert torch.equal(to_vector(again), mean)
    # Of the rest, the one-shot head's share; of a class unknown to it, the other's.
    averaging = replace(averaging, unsent=(1,))
    load_vector(wanted, averaged(wanted, *vectors, averaging))
    first, second = one.softmax(1), other.softmax(1)
    first[:, 1] = 0
    first *= (1 - second[:, [1]]) / first.sum(1, keepdim=True)
    first[:, 1] = second[:, 1]
    completed = (first + second) / 2
    assert torch.allclose(wanted(x).softmax(1), completed, atol=1e-6)
    for share in (0, 0.25, 1):
        mixed = share * first + (1 - share) * second
        found = wanted.mixed(wanted.halves(one, x), share)
        assert torch.allclose(found.exp(), mixed, atol=1e-6)
        unlike = averaged(wanted, *vectors, replace(averaging, share=share))
        assert torch.allclose(wanted.at(unlike)(x).softmax(1), mixed, atol=1e-6)
    again.cool(2.0)
    divided = torch.tensor(expected).log().div(2).softmax(1).float()
    assert torch.allclose(again(x).softmax(1), divided, atol=1e-6)
    later = ("offset", "temperature", "known", "floor")
    older = {name: t for name, t in wanted.state_dict().items() if name not in later}
    again.load_state_dict(older)
    assert (again.offset, again.temperature, again.known.tolist()) == (0, 1, [1] * 3)
    assert again.floor == 0


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_floor_is_the_same_for_all_classes(share, temperature):
    """It is added to what the temperature leaves, and can be taken out again."""
    generator = torch.Generator().manual_seed(0)
    wanted, x = AverageHead(4, 3), 3 * torch.randn(6, 4, generator=generator)
    heads = [LinearHead(4, 3).reset(generator) for _ in range(2)]
    vectors = [recast(h, to_vector(h), wanted, t) for h, t in zip(heads, (False, True))]
    plain = wanted.at(averaged(wanted, *vectors, Averaging(share)))
    mean = averaged(wanted, *vectors, Averaging(share))
    raised = wanted.at(calibrated(wanted, mean, temperature, floor=0.2))
    plain.cool(temperature)
    before = plain(x).softmax(1)
    assert torch.allclose(raised(x).exp(), 0.8 * before + 0.2 / 3, atol=1e-6)
    found = raised.uncalibrated(raised(x).double(), temperature)
    expected = (plain(x) * temperature).softmax(1)
    assert torch.allclose(found.softmax(1).float(), expected, atol=2e-5)
    assert (plain.uncalibrated(plain(x), temperature) is None) == (temperature == 1)
    sure = torch.full((1, 3), 0.2 / 3).log()  # rounding has left nothing above it
    assert torch.isfinite(raised.uncalibrated(sure, temperature)).all()


def test_a_head_that_is_resized_stays_on_its_device():
    for head in (MixtureHead(4, 3), AverageHead(4, 3, 5)):
        head.to("meta").make_room_for(num_parameters(head) + 2 * 6)
        assert {p.device.type for p in head.parameters()} == {"meta"}


# Dropout draws what torch's own draws.


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_it_draws_as_torch_does(device):
    x = torch.ones(50, 7)
    torch.manual_seed(3)
    wanted = nn.Dropout(0.4)(x)
    after = torch.rand(1)
    torch.manual_seed(3)
    found = Dropout(0.4)(x.to(device))
    assert torch.equal(torch.rand(1), after)
    assert found.shape == wanted.shape
    if device == "cpu":
        assert torch.equal(found, wanted)


def test_it_does_nothing_in_evaluation():
    x = torch.ones(4, 3)
    assert torch.equal(Dropout(0.9).eval()(x), x)


# Folding: a model gives on raw embeddings what it gives in its space, and back.


def draw(dim, seed, scale, offset):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, dim)) * np.linspace(0.5, 1.5, dim)
    return torch.from_numpy(scale * (rows + rng.normal(size=dim) + offset)).float()


def make(kind, rows):
    if kind == "raw":
        return Space.raw(rows.shape[1])
    return Space.standard(Totals.of_rows(rows))


def trained(head, dim, seed):
    """A model with weights of the size that training leaves, and them as a vector."""
    model = build_model(dim, CLASSES, MODELS[head])
    model.reset(torch.Generator().manual_seed(seed))
    return model, 5 * to_vector(model)


@given(
    kind=st.sampled_from(["raw", "standard"]),
    head=st.sampled_from([*MODELS]),
    dim=st.integers(1, 24),
    seed=st.integers(0, 99),
    scale=st.sampled_from([0.03, 1.0, 40.0]),
    offset=st.sampled_from([0.0, 3.0]),
)
def test_logits_on_raw_embeddings_are_those_in_the_space_and_back(
    kind, head, dim, seed, scale, offset
):
    rows = draw(dim, seed, scale, offset)
    space = make(kind, rows)
    model, params = trained(head, dim, seed)
    inside = model.at(params)(space.features(rows))
    outside = model.at(fold(model, params, space))(rows)
    assert (inside - outside).abs().max() <= 1e-4
    rows = draw(dim, seed, 1.0, 1.0)
    space = make(kind, rows)
    there_and_back = unfold(model, fold(model, params, space), space)
    torch.testing.assert_close(there_and_back, params, rtol=1e-4, atol=1e-4)
    inside = model.at(unfold(model, params, space))(space.features(rows))
    torch.testing.assert_close(inside, model.at(params)(rows), rtol=1e-4, atol=1e-4)


def test_of_an_mlp_the_first_layer_alone_is_folded():
    rows = draw(3, 0, 2.0, 1.0)
    space = make("standard", rows)
    model, params = trained("mlp", 3, 0)
    before, after = (
        named_tensors(model, v) for v in (params, fold(model, params, space))
    )
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed == ["hidden.weight", "hidden.bias"]


def test_what_is_given_stays_and_raw_gives_it_back():
    rows = draw(3, 0, 2.0, 1.0)
    model, params = trained("linear", 3, 0)
    kept = params.clone()
    for turn in (fold, unfold):
        turn(model, params, make("standard", rows))
        assert torch.equal(params, kept)
        assert turn(model, params, Space.raw(3)) is params


def test_a_model_without_a_linear_first_layer_is_refused():
    model = build_model(3, 2, ModelSettings(closed_form="mixture"))
    space = Space.standard(Totals.of_rows(torch.eye(3)))
    for turn in (fold, unfold):
        with pytest.raises(ConfigError, match="MixtureHead"):
            turn(model, to_vector(model), space)
