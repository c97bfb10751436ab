"""The quadratic head: its logits, its packing, its vector, and what it refuses."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models import (
    ModelSettings,
    QuadraticHead,
    build_model,
    load_vector,
    named_tensors,
    num_parameters,
    to_vector,
)
from federatedscope_ggeur.models.quadratic import pack, unpack

DIM, CLASSES = 5, 3


def random_head(dim=DIM, num_classes=CLASSES):
    model = build_model(dim, num_classes, ModelSettings(closed_form="qda"))
    generator = torch.Generator().manual_seed(1)
    load_vector(model, torch.randn(num_parameters(model), generator=generator))
    return model


def by_numpy(model, points):
    """Logits in float64, a number at a time."""
    means, factors, offsets = (p.detach().double().numpy() for p in model.parameters())
    logits = np.zeros((len(points), model.num_classes))
    for c in range(model.num_classes):
        factor = np.zeros((model.in_features, model.in_features))
        place = 0
        for i in range(model.in_features):
            for j in range(i + 1):
                factor[i, j] = factors[c, place]
                place += 1
        for k, x in enumerate(points):
            moved = factor @ (x - means[c])
            logits[k, c] = offsets[c] - moved @ moved / 2
    return logits


@pytest.mark.parametrize(("dim", "num_classes"), [(1, 1), (2, 4), (5, 3), (40, 2)])
def test_logits_equal_plain_numpy(dim, num_classes):
    model = random_head(dim, num_classes)
    points = torch.randn(20, dim, generator=torch.Generator().manual_seed(2))
    found = model(points).detach().numpy()
    np.testing.assert_allclose(
        found, by_numpy(model, points.double().numpy()), rtol=1e-5
    )


def test_logits_keep_their_digits_far_from_the_origin():
    model, points = random_head(), torch.randn(20, DIM)
    with torch.no_grad():
        model.means += 4096
    points = points + 4096
    found = model(points).detach().numpy()
    np.testing.assert_allclose(
        found, by_numpy(model, points.double().numpy()), rtol=1e-5
    )


def test_packing_goes_row_by_row_and_back():
    packed = torch.arange(1.0, 7.0)
    wanted = torch.tensor([[1.0, 0, 0], [2, 3, 0], [4, 5, 6]])
    assert torch.equal(unpack(packed, 3), wanted)
    assert torch.equal(pack(wanted), packed)


def test_the_parameters_are_one_vector_and_a_state_dict():
    model = random_head()
    assert num_parameters(model) == CLASSES * (DIM + DIM * (DIM + 1) // 2 + 1)
    vector = torch.arange(num_parameters(model), dtype=torch.float32)
    load_vector(model, vector)
    assert torch.equal(to_vector(model), vector)
    other = QuadraticHead(DIM, CLASSES)
    other.load_state_dict(named_tensors(model, vector))
    assert torch.equal(to_vector(other), vector)


def test_a_frozen_copy_gives_the_same_logits():
    model, points = random_head(), torch.randn(4, DIM)
    frozen = QuadraticHead(DIM, CLASSES).at(to_vector(model))
    assert not frozen.training
    assert not frozen(points).requires_grad
    assert torch.equal(frozen(points), model(points))


def test_reset_leaves_half_the_squared_distance_from_the_origin():
    model = random_head()
    points = torch.randn(4, DIM)
    before = torch.get_rng_state()
    assert model.reset(torch.Generator().manual_seed(3)) is model
    assert torch.equal(torch.get_rng_state(), before)
    wanted = -points.square().sum(dim=1, keepdim=True).expand(4, CLASSES) / 2
    torch.testing.assert_close(model(points), wanted)
    assert torch.equal(to_vector(model), to_vector(QuadraticHead(DIM, CLASSES)))


def test_its_representation_is_the_logits():
    model, points = random_head(), torch.randn(4, DIM)
    assert torch.equal(model.represent(points), model(points))
    assert torch.equal(model.classify(model.represent(points)), model(points))


def test_the_gradient_is_autograds():
    model = random_head()
    points, labels = torch.randn(6, DIM), torch.tensor([0, 1, 2, 0, 1, 2])
    into = torch.full((num_parameters(model),), float("nan"))
    model.gradient_accumulator(into, beta=0.0)(points, labels)
    # Central differences in float64 along a random direction.
    double = random_head().double()
    vector = to_vector(double)
    along = torch.randn(len(vector), dtype=torch.float64)

    def loss(step):
        load_vector(double, vector + step * along)
        with torch.no_grad():
            return float(F.cross_entropy(double(points.double()), labels))

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    assert float(into.double() @ along) == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_it_has_no_last_layer_and_no_hidden_units():
    model = random_head()
    for ask in (
        lambda: model.classifier,
        lambda: model.last_input(torch.zeros(1, DIM)),
    ):
        with pytest.raises(ConfigError, match="no last layer"):
            ask()
    with pytest.raises(ConfigError, match="no hidden units, got 8"):
        build_model(DIM, CLASSES, ModelSettings(hidden=8, closed_form="qda"))
