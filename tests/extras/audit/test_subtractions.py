"""A9 and S1 to S4: they succeed where a rule is broken, and fail where it is kept."""

import pytest
import torch
from planted import CLOCK, head_of, only, owned, transcript, truth_of, uploaded

from federatedscope_ggeur.extras.audit.base import Clock
from federatedscope_ggeur.extras.audit.subtractions import a9, s1, s2, s3, s4
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    Prototypes,
)
from federatedscope_ggeur.geometry import GeometricShape, Space, Statistics

LDA = {"shrinkage": 0.1}


def merged(clients, classes=4):
    x, y = (torch.cat(parts) for parts in zip(*clients.values()))
    return Statistics.from_embeddings(x, y, classes)


def pooled_shape(clients, classes=4):
    held = merged(clients, classes).to("pooled")
    shape = GeometricShape.pooled(held)
    return Geometry(dict.fromkeys(range(classes), shape), pooled=True)


def by_head(attack, clients, name="lda", options=None, clock=CLOCK, **more):
    """The finding of an attack that sees a head of the clients, and `more`."""
    but = more.pop("but", ())
    options = LDA if name == "lda" else options
    form, head, classes = head_of(clients, name, options, but=but)
    seen = transcript(form=form, head=head, head_classes=classes, **more)
    return only(attack(seen, truth_of(clients), clock))


class TestS1:
    @pytest.mark.parametrize(
        ("first", "found"),
        [(0, (1.0, False, 1, "")), (1, (None, None, None, "sent nothing about"))],
        ids=["all", "the class is kept back"],
    )
    def test_a_mean_that_goes_down_gives_the_row(self, first, found):
        clients = owned()
        held = merged(clients)
        means, counts = held.means[first:].float(), held.counts[first:]
        sent = Prototypes(torch.arange(first, 4), means, counts)
        seen = transcript(prototypes=dict.fromkeys(clients, sent))
        one = only(s1(seen, truth_of(clients), CLOCK))
        assert (one.value, one.passed, one.tried) == found[:3]
        assert found[3] in one.note

    @pytest.mark.parametrize(("but", "value"), [((), 1.0), ((0,), None)])
    def test_so_does_a_head_of_nearest_means(self, but, value):
        assert by_head(s1, owned(), "ncm", but=but).value == value


class TestS2:
    @pytest.mark.parametrize(("but", "value"), [((), 1.0), ((0,), None)])
    def test_a_head_and_the_shape_give_means(self, but, value):
        clients = owned()
        seen = {"geometry": pooled_shape(clients), "space": Space.raw(12)}
        assert by_head(s2, clients, but=but, **seen).value == value

    def test_the_head_alone_does_not(self):
        found = by_head(s2, owned())
        assert (found.value, found.note) == (0.0, "the attack had a guess for 1")


class TestS3:
    def test_where_the_others_hold_one_row_a_head_gives_it(self):
        # Class 0: one row of client 2's; all else client 1's.
        found = by_head(s3, owned(sole=3))
        assert (found.value, found.passed) == (1.0, False)

    def test_where_they_hold_more_it_does_not(self):
        assert by_head(s3, owned(sole=1)).passed is None

    def test_without_a_head_there_is_nothing_to_solve(self):
        clients = owned(sole=3)
        assert only(s3(transcript(), truth_of(clients), CLOCK)).passed is None


class TestS4:
    def seen(self, classes, sole, but=()):
        clients = owned(dim=4, classes=classes, sole=sole)
        form, head, kept = head_of(clients, "lda", LDA, classes=classes, but=but)
        seen = transcript(form=form, head=head, head_classes=kept)
        return only(s4(seen, truth_of(clients, classes=classes), CLOCK))

    def test_more_sole_classes_than_dimensions_solve_for_any_mean(self):
        found = self.seen(classes=9, sole=6)
        assert (found.value, found.passed) == (1.0, False)

    def test_fewer_do_not(self):
        assert self.seen(classes=9, sole=3).passed is None

    def test_a_class_that_is_left_out_of_the_head_stays_hidden(self):
        assert self.seen(classes=9, sole=6, but=(0,)).passed is None


class TestOtherHeads:
    def test_of_ridge_the_covariance_is_guessed_and_the_rest_not_tried(self):
        ridge = owned(), "ridge", {"strength": 0.4}
        assert by_head(s2, *ridge).tried == 1
        for attack in (s3, s4):
            found = by_head(attack, *ridge)
            assert (found.passed, found.tried) == (None, 0)

    def test_where_the_time_is_over_nothing_passes(self):
        found = by_head(s1, owned(), "ncm", clock=Clock(-1))
        assert (found.passed, found.tried) == (None, 0)


class TestA9:
    def test_of_two_clients_each_knows_the_other(self):
        three = owned(dim=200, rows=8, few=5, sole=1, others=6)
        clients = {k: three[k] for k in (1, 2)}
        held = merged(clients)
        shapes = {c: GeometricShape.from_statistics(held, c) for c in held.classes}
        seen = transcript(uploads=uploaded(clients), geometry=Geometry(shapes))
        found = only(a9(seen, truth_of(clients), CLOCK))
        assert found.value == len(shapes)
        assert found.passed is False

    def test_of_three_nobody_does(self):
        clients = owned(dim=200, rows=8, few=5, others=6)
        seen = transcript(uploads=uploaded(clients))
        assert only(a9(seen, truth_of(clients), CLOCK)).passed is None


def test_nobody_owns_nearly_all_of_anything():
    clients = owned(few=20)
    for attack in (s1, s2, s3, s4):
        found = only(attack(transcript(), truth_of(clients), CLOCK))
        assert found.passed is None
        assert "no client owns nearly all" in found.note
