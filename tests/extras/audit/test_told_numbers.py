"""A6 and A7: numbers of rows from ranks and from what a client counts for."""

import pytest
import torch
from planted import CLOCK, gaussian, only, transcript, truth_of, uploaded

from federatedscope_ggeur.extras.audit.told_numbers import a6, a7
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    PrepareReply,
)
from federatedscope_ggeur.geometry import GeometricShape, Statistics

COUNTS = [9, 3, 7, 0]


def federation():
    y = torch.repeat_interleave(torch.arange(4), torch.tensor(COUNTS))
    clients = {1: (gaussian(0, len(y), 40), y)}
    return clients, truth_of(clients)


def shapes(clients, pooled=False):
    held = Statistics.from_embeddings(*clients[1], 4)
    held = held.restrict([0, 2])
    if pooled:
        one = GeometricShape.pooled(held.to("pooled"))
        return Geometry(dict.fromkeys(range(4), one), pooled=True)
    return Geometry({c: GeometricShape.from_statistics(held, c) for c in (0, 2)})


def test_ranks_tell_rows():
    clients, truth = federation()
    uploads = uploaded(clients, least=5)
    seen = transcript(uploads=uploads, geometry=shapes(clients))
    found = only(a6(seen, truth, CLOCK))
    assert (found.value, found.passed) == (2.0, False)


def test_a_pooled_shape_tells_none():
    clients, truth = federation()
    seen = transcript(geometry=shapes(clients, pooled=True))
    assert only(a6(seen, truth, CLOCK)).passed is None


@pytest.mark.parametrize(
    ("weight", "steps", "counts_for", "known"),
    [
        ("original", "[1]", 19, 1.0),
        ("original", "[1]", 17, 0.0),
        ("augmented", "[1]", 150, 1.0),
        ("augmented", "[2]", 19, 1.0),
        ("augmented", "[2]", 17, 0.0),
    ],
)
def test_what_a_client_counts_for_tells_withheld_rows(weight, steps, counts_for, known):
    """Class 1 of 3 rows is withheld and has no shape; step 1 fills all up to 50, and
    there is no prototype for step 2."""
    clients, truth = federation()
    settings = ["ggeur.weight", weight, "ggeur.steps", steps, "ggeur.step1_size", "50"]
    seen = transcript(
        settings=settings,
        uploads=uploaded(clients, least=5),
        geometry=shapes(clients),
        replies={1: PrepareReply(1, float(counts_for))},
    )
    found = only(a7(seen, truth, CLOCK))
    assert found.value == known
    assert found.passed == (not known)


def test_without_statistics_of_its_own_it_tells_nothing():
    clients, truth = federation()
    seen = transcript(replies={1: PrepareReply(1, 19.0)})
    assert only(a7(seen, truth, CLOCK)).passed is None
    assert clients
