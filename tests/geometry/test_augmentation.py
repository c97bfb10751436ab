"""Recipes: sizes, anchors, noise and labels, against the plain oracle."""

import geometry_oracle as oracle
import pytest
import torch

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import (
    AugmentationSettings,
    GeometricShape,
    PerAnchorSizes,
    ReleaseSizes,
    TotalSizes,
    augment,
)

DIM = 4
STEPS = [(), (1,), (2,), (1, 2)]


def random_rows(n, seed=0):
    """The first rows of an endless table."""
    return torch.randn(64, DIM, generator=torch.Generator().manual_seed(seed))[:n]


def flat_shape():
    """No directions at all: new rows equal their anchors."""
    return GeometricShape.from_covariance(torch.zeros(DIM, DIM))


def round_shape():
    return GeometricShape.from_covariance(torch.diag(torch.tensor([4.0, 3, 2, 1])))


def recipe(labels, prototype_labels=(), shape=round_shape, seed=1, shapes=None, **how):
    """The recipe of random rows with these labels; a shape for every class if None."""
    labels, prototype_labels = torch.tensor(labels), torch.tensor(prototype_labels)
    classes = [*labels.tolist(), *prototype_labels.tolist()]
    if shapes is None:
        shapes = {c: shape() for c in classes}
    prototypes = 10 + random_rows(len(prototype_labels), seed=7)
    return augment(
        random_rows(len(labels)),
        labels.long(),
        shapes,
        prototypes,
        prototype_labels.long(),
        AugmentationSettings(**how),
        seed,
    )


def of_class(drawn, c):
    features, labels = drawn
    return features[labels == c]


def assert_consistent(augmented):
    features, labels = augmented.draw()
    assert features.shape == (augmented.rows, DIM)
    assert features.dtype == torch.float32
    assert torch.isfinite(features).all()
    assert labels.dtype == torch.int64
    assert torch.equal(labels, augmented.labels)
    assert torch.equal(labels, labels.sort().values)
    nbytes = features.numel() * features.element_size()
    assert augmented.nbytes == nbytes + labels.numel() * labels.element_size()


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("sizes", [TotalSizes(24, 0), PerAnchorSizes(3, 0)])
def test_step_1_uses_the_originals_evenly(n, sizes):
    augmented = recipe([2] * n, [2], shape=flat_shape, steps=(1,), sizes=sizes)
    features, _ = augmented.draw()
    counts = oracle.usage(features[n:].numpy(), random_rows(n).numpy())
    assert sum(counts) == (24 - n if isinstance(sizes, TotalSizes) else 3 * n)
    assert max(counts) - min(counts) <= 1


def test_classes_are_matched_as_numbers_and_step_2_goes_prototype_by_prototype():
    shapes = dict.fromkeys((1, 7, 100), flat_shape())
    labels, around = [1, 10, 100], [10, 1, 7, 1]
    augmented = recipe(labels, around, shapes=shapes, sizes=TotalSizes(3, 2))
    rows, prototypes = random_rows(3), 10 + random_rows(4, seed=7)
    drawn = augmented.draw()
    for c, expected in {
        1: [rows[0]] * 3 + [prototypes[1]] * 2 + [prototypes[3]] * 2,
        7: [prototypes[2]] * 2,
        10: [rows[1]] * 3,
        100: [rows[2]] * 3,
    }.items():
        assert torch.equal(of_class(drawn, c), torch.stack(expected))


def test_the_cut_keeps_the_originals_and_new_rows_at_random_and_in_order():
    sizes = PerAnchorSizes(0, 50, target=60)
    augmented = recipe([0] * 40, [0], sizes=sizes)
    features, _ = augmented.draw()
    assert torch.equal(features[:40], random_rows(40))
    uncut, _ = recipe([0] * 40, [0], sizes=PerAnchorSizes(0, 50)).draw()
    kept = positions(features[40:], uncut[40:])
    assert kept == sorted(set(kept))
    assert kept[-1] > 25 > kept[0]  # by chance, not the first ones
    other = recipe([0] * 40, [0], sizes=sizes, seed=2).draw()[0]
    assert torch.equal(other[:40], features[:40])
    assert not torch.equal(other, features)


@pytest.mark.parametrize("sizes", [PerAnchorSizes(1, 50, 30), ReleaseSizes(9, 50, 30)])
def test_the_cut_of_more_originals_than_fit_leaves_some_at_random(sizes):
    augmented = recipe([0] * 50, [0], sizes=sizes)
    features, _ = augmented.draw()
    kept = positions(features, random_rows(50))
    assert kept == sorted(set(kept))
    assert kept != list(range(30))
    other = recipe([0] * 50, [0], sizes=sizes, seed=2)
    assert not torch.equal(features, other.draw()[0])
    fresh = recipe([0] * 50, [0], sizes=sizes, noise="fresh")
    assert not torch.equal(fresh.draw(1)[0], fresh.draw(2)[0])


def positions(rows, among):
    """Where each of `rows` stands among others, which hold it once."""
    return [int(torch.nonzero((among == row).all(dim=1))) for row in rows]


@pytest.mark.parametrize("scale", ["covariance", "eigenvalue"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_noise_has_the_expected_covariance_and_not_the_other(scale, share):
    dim, draws = 8, 200_000
    rng = torch.Generator().manual_seed(3)
    root = torch.randn(dim, dim, generator=rng).double()
    sigma = root @ root.T / dim
    prototype = 5 * torch.randn(1, dim, generator=rng)
    sizes = TotalSizes(0, round(draws / share))
    settings = AugmentationSettings((1, 2), sizes, scale, share=share)
    nothing = torch.zeros(0, dim), torch.zeros(0, dtype=torch.int64)
    shapes = {0: GeometricShape.from_covariance(sigma)}
    one = torch.zeros(1, dtype=torch.int64)
    features, _ = augment(*nothing, shapes, prototype, one, settings, 11).draw()
    noise = (features - prototype).double()
    empirical = noise.T @ noise / draws

    def largest_z(expected):
        diagonal = expected.diag()
        error = ((diagonal[:, None] * diagonal + expected**2) / draws).sqrt()
        return float(((empirical - expected) / error).abs().max())

    expected, other = sigma, sigma @ sigma
    if scale == "eigenvalue":
        expected, other = other, expected
    assert largest_z(expected) <= 4.5
    assert largest_z(other) > 4.5
    mean_error = (expected.diag() / draws).sqrt()
    assert (noise.mean(dim=0).abs() <= 4.5 * mean_error).all()


def test_fixed_noise_is_the_same_every_round_and_fresh_is_not():
    sizes = PerAnchorSizes(2, 2, target=8)
    fixed, fresh = (
        recipe([0, 0, 1], [0, 1], sizes=sizes, noise=noise)
        for noise in ("fixed", "fresh")
    )
    assert fixed.same_every_round
    assert not fresh.same_every_round
    assert torch.equal(fixed.draw(1)[0], fixed.draw(5)[0])
    assert torch.equal(fresh.draw(5)[0], fresh.draw(5)[0])
    assert not torch.equal(fresh.draw(1)[0], fresh.draw(5)[0])
    assert torch.equal(fresh.draw(1)[1], fresh.draw(5)[1])
    assert recipe([0, 1], steps=(), noise="fresh").same_every_round


def test_only_a_set_of_own_rows_has_an_order():
    own = recipe([2, 0, 1, 0], steps=())
    features, labels = own.draw()
    assert own.order.tolist() == [1, 3, 2, 0]
    assert torch.equal(features, random_rows(4)[own.order])
    assert labels.tolist() == [0, 0, 1, 2]
    assert recipe([2, 0, 1, 0], steps=(1,), sizes=TotalSizes(3, 0)).order is None


def test_clients_and_classes_get_different_noise():
    how = {"steps": (2,), "sizes": TotalSizes(0, 5)}
    anchors = 10 + random_rows(2, seed=7)
    first = recipe([], [1, 10], seed=1, **how).draw()
    second = recipe([], [1, 10], seed=2, **how).draw()
    again = recipe([], [1, 10], seed=1, **how).draw()
    noise = [of_class(first, c) - anchor for c, anchor in zip((1, 10), anchors)]
    assert torch.equal(first[0], again[0])
    assert (first[0] != second[0]).any(dim=1).all()
    assert (noise[0] - noise[1]).abs().max() > 0.1
    assert len(first[0].unique(dim=0)) == 10


def test_noise_of_a_class_does_not_depend_on_the_other_classes():
    alone = of_class(recipe([4, 4], sizes=TotalSizes(9, 0)).draw(), 4)
    beside = recipe([4, 4, 1, 7], [1], sizes=TotalSizes(9, 3))
    assert torch.equal(of_class(beside.draw(), 4), alone)


@pytest.mark.parametrize("sizes", [TotalSizes(9, 9), PerAnchorSizes(3, 3, target=2)])
def test_a_class_without_a_shape_repeats_its_originals(sizes):
    augmented = recipe([0, 0, 5, 0], [5, 6], shapes={0: round_shape()}, sizes=sizes)
    drawn = augmented.draw()
    rows = of_class(drawn, 5)
    assert len(rows) == (9 if isinstance(sizes, TotalSizes) else 2)
    assert torch.equal(rows, random_rows(4)[2:3].expand_as(rows))
    assert len(of_class(drawn, 6)) == 0
    shapeless = recipe([0, 0, 5, 0], [5, 6], shapes={}, sizes=sizes)
    assert len(shapeless.draw()[0]) == 4
    for held in (augmented, shapeless):
        assert_consistent(held)


def test_a_client_without_data():
    only_step_2 = recipe([], [2, 0, 2], sizes=TotalSizes(50, 4))
    assert only_step_2.labels.tolist() == [0] * 4 + [2] * 8
    assert_consistent(only_step_2)
    for steps in STEPS:
        nothing = recipe([], [], steps=steps)
        assert (nothing.rows, nothing.nbytes) == (0, 0)
        assert_consistent(nothing)


def test_shapes_of_thin_rank_move_rows_only_along_their_directions():
    thin = GeometricShape.from_factors([torch.tensor([[0.0, 3.0, 4.0, 0.0]])], 1)
    augmented = recipe([0], [0], shape=lambda: thin, sizes=TotalSizes(20, 20))
    features, _ = augmented.draw()
    moved = features[1:20] - features[0]
    assert not moved[:, [0, 3]].any()
    torch.testing.assert_close(moved[:, 1] * 4, moved[:, 2] * 3, rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_refused():
    narrow = GeometricShape.from_covariance(torch.eye(3))
    with pytest.raises(StatisticsError, match="the shape of class 1 has 3 dimensions"):
        recipe([1], shapes={1: narrow})
    rows, labels = random_rows(2), torch.tensor([0, 1])
    for prototypes, around in [(torch.ones(1, 3), labels[:1]), (rows, labels[:1])]:
        with pytest.raises(StatisticsError, match="prototypes must be of shape"):
            augment(rows, labels, {}, prototypes, around, AugmentationSettings(), 0)
    for wrong in ({"steps": (3,)}, {"scale": "variance"}, {"noise": "loud"}):
        with pytest.raises(ValueError, match=r"steps may hold|unknown scale"):
            AugmentationSettings(**wrong)
