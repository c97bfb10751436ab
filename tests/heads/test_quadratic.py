"""The quadratic head: its logits, its packing, its vector, and what it refuses."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.heads import (
    HeadSettings,
    QuadraticHead,
    build_head,
    load_vector,
    named_tensors,
    num_parameters,
    to_vector,
)
from federatedscope_ggeur.heads.quadratic import pack, unpack

DIM, CLASSES = 5, 3


def random_head(dim=DIM, num_classes=CLASSES):
    head = build_head(dim, num_classes, HeadSettings(quadratic=True))
    generator = torch.Generator().manual_seed(1)
    load_vector(head, torch.randn(num_parameters(head), generator=generator))
    return head


def by_numpy(head, points):
    """Logits in float64, a number at a time."""
    means, factors, offsets = (p.detach().double().numpy() for p in head.parameters())
    logits = np.zeros((len(points), head.num_classes))
    for c in range(head.num_classes):
        factor = np.zeros((head.in_features, head.in_features))
        place = 0
        for i in range(head.in_features):
            for j in range(i + 1):
                factor[i, j] = factors[c, place]
                place += 1
        for k, x in enumerate(points):
            moved = factor @ (x - means[c])
            logits[k, c] = offsets[c] - moved @ moved / 2
    return logits


@pytest.mark.parametrize(("dim", "num_classes"), [(1, 1), (2, 4), (5, 3), (40, 2)])
def test_logits_equal_plain_numpy(dim, num_classes):
    head = random_head(dim, num_classes)
    points = torch.randn(20, dim, generator=torch.Generator().manual_seed(2))
    found = head(points).detach().numpy()
    np.testing.assert_allclose(
        found, by_numpy(head, points.double().numpy()), rtol=1e-5
    )


def test_logits_keep_their_digits_far_from_the_origin():
    head, points = random_head(), torch.randn(20, DIM)
    with torch.no_grad():
        head.means += 4096
    points = points + 4096
    found = head(points).detach().numpy()
    np.testing.assert_allclose(
        found, by_numpy(head, points.double().numpy()), rtol=1e-5
    )


def test_packing_goes_row_by_row_and_back():
    packed = torch.arange(1.0, 7.0)
    wanted = torch.tensor([[1.0, 0, 0], [2, 3, 0], [4, 5, 6]])
    assert torch.equal(unpack(packed, 3), wanted)
    assert torch.equal(pack(wanted), packed)


def test_the_parameters_are_one_vector_and_a_state_dict():
    head = random_head()
    assert num_parameters(head) == CLASSES * (DIM + DIM * (DIM + 1) // 2 + 1)
    vector = torch.arange(num_parameters(head), dtype=torch.float32)
    load_vector(head, vector)
    assert torch.equal(to_vector(head), vector)
    other = QuadraticHead(DIM, CLASSES)
    other.load_state_dict(named_tensors(head, vector))
    assert torch.equal(to_vector(other), vector)


def test_a_frozen_copy_gives_the_same_logits():
    head, points = random_head(), torch.randn(4, DIM)
    frozen = QuadraticHead(DIM, CLASSES).at(to_vector(head))
    assert not frozen.training
    assert not frozen(points).requires_grad
    assert torch.equal(frozen(points), head(points))


def test_reset_leaves_half_the_squared_distance_from_the_origin():
    head = random_head()
    points = torch.randn(4, DIM)
    before = torch.get_rng_state()
    assert head.reset(torch.Generator().manual_seed(3)) is head
    assert torch.equal(torch.get_rng_state(), before)
    wanted = -points.square().sum(dim=1, keepdim=True).expand(4, CLASSES) / 2
    torch.testing.assert_close(head(points), wanted)
    assert torch.equal(to_vector(head), to_vector(QuadraticHead(DIM, CLASSES)))


def test_its_representation_is_the_logits():
    head, points = random_head(), torch.randn(4, DIM)
    assert torch.equal(head.represent(points), head(points))
    assert torch.equal(head.classify(head.represent(points)), head(points))


def test_the_gradient_is_autograds():
    head = random_head()
    points, labels = torch.randn(6, DIM), torch.tensor([0, 1, 2, 0, 1, 2])
    into = torch.full((num_parameters(head),), float("nan"))
    head.gradient_accumulator(into, beta=0.0)(points, labels)
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
    head = random_head()
    for ask in (lambda: head.classifier, lambda: head.last_input(torch.zeros(1, DIM))):
        with pytest.raises(ConfigError, match="no last layer"):
            ask()
    with pytest.raises(ConfigError, match="no hidden units, got 8"):
        build_head(DIM, CLASSES, HeadSettings(hidden=8, quadratic=True))
