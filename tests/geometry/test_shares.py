"""A share of an augmented set: which rows a round draws, and how they look."""

import pytest
import torch
from examples import examples
from geometry_oracle import share_of_rows
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.geometry import (
    AugmentationSettings,
    GeometricShape,
    PerAnchorSizes,
    ReleaseSizes,
    TotalSizes,
    augment,
)

DIM = 4
SIZES = (TotalSizes(12, 7), ReleaseSizes(9, 5, 14), PerAnchorSizes(3, 4, None))


def far_rows(n, below=0):
    """Rows that are far from one another, so that each new row shows its anchor."""
    numbers = torch.arange(below, below + n, dtype=torch.float32)
    return (1000 * (numbers[:, None] + 1)).repeat(1, DIM)


def recipe(own, prototypes, share, sizes=SIZES[0], steps=(1, 2), variance=1.0, **how):
    """The set of a client with `own` rows and `prototypes` of each class."""
    labels = torch.arange(len(own)).repeat_interleave(torch.tensor(own))
    around = torch.arange(len(own)).repeat_interleave(torch.tensor(prototypes))
    shape = GeometricShape.from_covariance(variance * torch.eye(DIM))
    return augment(
        far_rows(len(labels)),
        labels,
        dict.fromkeys(range(len(own)), shape),
        far_rows(len(around), below=len(labels)),
        around,
        AugmentationSettings(steps, sizes, share=share, **how),
        seed=3,
    )


counts = st.lists(st.integers(0, 9), min_size=1, max_size=4)
shares = st.floats(0.01, 0.99)


@examples(80)
@given(counts, st.integers(0, 3), shares, st.sampled_from(SIZES), st.booleans())
def test_each_class_has_its_share_of_the_whole_set(own, each, share, sizes, both):
    steps, prototypes = ((1, 2) if both else (1,)), [each] * len(own)
    part = recipe(own, prototypes, share, sizes, steps)
    whole = recipe(own, prototypes, 1.0, sizes, steps)
    features, labels = part.draw(2)
    in_all = torch.bincount(whole.labels, minlength=len(own)).tolist()
    drawn = torch.bincount(labels, minlength=len(own)).tolist()
    assert drawn == [share_of_rows(n, share) for n in in_all]
    assert part.whole == whole.rows == sum(in_all)
    assert part.rows == len(features) == sum(drawn)
    assert torch.equal(labels, part.labels)
    assert part.nbytes == features.nbytes + labels.nbytes


@examples(80)
@given(counts, st.integers(0, 3), shares, st.sampled_from(SIZES))
def test_rows_of_a_share_are_rows_of_the_whole_set(own, each, share, sizes):
    """Without noise each row is its anchor; none is drawn more often than the whole
    set has it.
    """
    sets = [
        recipe(own, [each] * len(own), s, sizes, variance=0.0) for s in (share, 1.0)
    ]
    some, whole = (
        [(c, row[0].item()) for row, c in zip(x, y.tolist())]
        for x, y in (a_set.draw(5) for a_set in sets)
    )
    if sizes is SIZES[1]:  # its cut is another one in each round
        assert {c for c, _ in some} == {c for c, _ in whole}
        return
    for row in set(some):
        assert some.count(row) <= whole.count(row)


@pytest.mark.slow
def test_over_rounds_each_row_comes_as_often_as_any_other():
    part = recipe([2, 5], [1, 2], 0.25, variance=0.0)
    whole = recipe([2, 5], [1, 2], 1.0, variance=0.0)
    rounds = 3000
    seen = torch.cat([part.draw(number)[0][:, 0] for number in range(rounds)])
    for anchor in whole.draw()[0][:, 0].unique():
        of_whole = int((whole.draw()[0][:, 0] == anchor).sum())
        class_share = part.rows / part.whole
        expected = rounds * of_whole * class_share
        found = int((seen == anchor).sum())
        assert abs(found - expected) < 0.1 * expected + 5 * expected**0.5


def test_own_rows_of_a_share_carry_no_noise_and_each_has_its_turn():
    part = recipe([6], [0], 0.5, TotalSizes(6, 0), steps=(1,))
    drawn = torch.cat([part.draw(number)[0][:, 0] for number in range(20)])
    assert set(drawn.tolist()) == set(far_rows(6)[:, 0].tolist())


@pytest.mark.parametrize("noise", ["fixed", "fresh"])
def test_a_round_has_its_own_rows_and_repeats_them(noise):
    part = recipe([5, 4], [2, 2], 0.3, variance=0.0, noise=noise)
    assert not part.same_every_round
    first, second = part.draw(1)[0], part.draw(2)[0]
    assert torch.equal(first, part.draw(1)[0])
    assert not torch.equal(first, second)
    into = torch.empty_like(first)
    part.draw(1, out=into)
    assert torch.equal(into, first)


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_other_shares_are_refused(share):
    with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
        AugmentationSettings(share=share)


# Each rule of sizes against a plain table of rows, own and new.


OWN = (0, 3, 499, 700)
#: For each rule, steps and number of prototypes: of a class with each of OWN, the rows
#: of its own that are kept, and the new ones.
TABLE = [
    # The paper, one domain (Section 3.2.1): 2000 in all.
    (TotalSizes(2000, 500), (1,), 0, [(0, 0), (3, 1997), (499, 1501), (700, 1300)]),
    # The paper, several (Section 3.2.2): 500 in all, and 500 for each prototype.
    (TotalSizes(500, 500), (1,), 3, [(0, 0), (3, 497), (499, 1), (700, 0)]),
    (TotalSizes(500, 500), (1, 2), 0, [(0, 0), (3, 497), (499, 1), (700, 0)]),
    (
        TotalSizes(500, 500), (1, 2), 3,
        [(0, 1500), (3, 1997), (499, 1501), (700, 1500)],
    ),
    (TotalSizes(500, 500), (2,), 1, [(0, 500), (3, 500), (499, 500), (700, 500)]),
    # The release's Digits: 500 new, 500 for each prototype, cut to 2000.
    (
        ReleaseSizes(500, 500, 2000), (1, 2), 3,
        [(0, 1500), (3, 1997), (499, 1501), (700, 1300)],
    ),
    (
        ReleaseSizes(500, 500, 2000), (1, 2), 1,
        [(0, 500), (3, 1000), (499, 1000), (700, 1000)],
    ),
    (ReleaseSizes(500, 500, 2000), (1,), 3, [(0, 0), (3, 500), (499, 500), (700, 500)]),
    # The release's Office-Home-LDS: 50 each, cut to 50.
    (ReleaseSizes(50, 50, 50), (1, 2), 3, [(0, 50), (3, 47), (50, 0), (50, 0)]),
    (ReleaseSizes(50, 50, 50), (1, 2), 0, [(0, 0), (3, 47), (50, 0), (50, 0)]),
    # The plugin document: 50 for each row and prototype, cut to 100, or not.
    (PerAnchorSizes(50, 50, 100), (1, 2), 3, [(0, 100), (3, 97), (100, 0), (100, 0)]),
    (PerAnchorSizes(50, 50, 100), (1, 2), 1, [(0, 50), (3, 97), (100, 0), (100, 0)]),
    (
        PerAnchorSizes(50, 50), (1, 2), 3,
        [(0, 150), (3, 300), (499, 25_100), (700, 35_150)],
    ),
    (PerAnchorSizes(50, 50), (1,), 3, [(0, 0), (3, 150), (499, 24_950), (700, 35_000)]),
    # The plain baseline is never cut.
    (ReleaseSizes(50, 50, 50), (), 3, [(0, 0), (3, 0), (499, 0), (700, 0)]),
    (PerAnchorSizes(50, 50, 50), (), 3, [(0, 0), (3, 0), (499, 0), (700, 0)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "steps", "prototypes", "expected"),
    TABLE,
    ids=lambda part: "" if isinstance(part, list) else str(part),
)
def test_rows_of_a_class(sizes, steps, prototypes, expected):
    for n, counts in zip(OWN, expected):
        assert drawn(n, prototypes, steps, sizes) == counts, n


def drawn(n, prototypes, steps, sizes):
    """Own and new rows of a class that holds `n`."""
    rows = torch.arange(n, dtype=torch.float32)[:, None].repeat(1, 2)
    augmented = augment(
        rows,
        torch.zeros(n, dtype=torch.int64),
        {0: GeometricShape.from_covariance(torch.eye(2))},
        torch.zeros(prototypes, 2),
        torch.zeros(prototypes, dtype=torch.int64),
        AugmentationSettings(steps, sizes),
        seed=0,
    )
    features, labels = augmented.draw()
    own = int((features == features.round()).all(dim=1).sum())
    assert len(features.unique(dim=0)) == len(labels) == augmented.rows
    return own, len(labels) - own
