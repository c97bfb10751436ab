"""Each rule of sizes against a plain table of rows, own and new."""

from __future__ import annotations

import pytest
import torch

from federatedscope_ggeur.geometry import (
    AugmentationSettings,
    GeometricShape,
    PerAnchorSizes,
    ReleaseSizes,
    TotalSizes,
    augment,
)

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
