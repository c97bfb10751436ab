"""A9 and S1 to S4: they succeed where a rule is broken, and fail where it is kept."""

import numpy as np
import pytest
import torch
from planted import (
    CLOCK,
    gaussian,
    head_of,
    merged,
    only,
    owned,
    transcript,
    truth_of,
    uploaded,
)
from private_words import SUMS
from sklearn.covariance import ledoit_wolf as other_ledoit_wolf

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.audit.base import Claim, Clock, Lied
from federatedscope_ggeur.extras.audit.liar import a11, a_claim, spoken_of
from federatedscope_ggeur.extras.audit.lying import lying
from federatedscope_ggeur.extras.audit.subtractions import (
    a9,
    ledoit_wolf,
    s1,
    s2,
    s3,
    s4,
)
from federatedscope_ggeur.extras.audit.transcript import recorded
from federatedscope_ggeur.extras.audit.transcript import truth_of as rows_of
from federatedscope_ggeur.extras.secure_sums.settings import SumSettings
from federatedscope_ggeur.extras.secure_sums.vectors import ClientRows, Named
from federatedscope_ggeur.federation.exchanges.augmentation import messages
from federatedscope_ggeur.geometry import GeometricShape, Space

LDA = {"shrinkage": 0.1}


def by_head(attack, clients, name="lda", options=None, clock=CLOCK, **more):
    """The finding of an attack that sees a head of the clients, and `more`."""
    but, classes = more.pop("but", ()), more.pop("classes", 4)
    options = LDA if name == "lda" else options
    form, head, kept = head_of(clients, name, options, classes, but)
    seen = transcript(form=form, head=head, head_classes=kept, **more)
    return only(attack(seen, truth_of(clients, classes=classes), clock))


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
        sent = messages.Prototypes(torch.arange(first, 4), means, counts)
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
        shape = GeometricShape.pooled(merged(clients).to("pooled"))
        geometry = messages.Geometry(dict.fromkeys(range(4), shape), pooled=True)
        seen = {"geometry": geometry, "space": Space.raw(12)}
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
    def found(self, sole, but=()):
        clients = owned(dim=4, classes=9, sole=sole)
        return by_head(s4, clients, classes=9, but=but)

    def test_more_sole_classes_than_dimensions_solve_for_any_mean(self):
        found = self.found(sole=6)
        assert (found.value, found.passed) == (1.0, False)

    def test_fewer_do_not(self):
        assert self.found(sole=3).passed is None

    def test_a_class_that_is_left_out_of_the_head_stays_hidden(self):
        assert self.found(sole=6, but=(0,)).passed is None


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
        seen = transcript(uploads=uploaded(clients), geometry=messages.Geometry(shapes))
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


# A11: one client that lies in the secure sums has the others' rows.


SKEWED = ["data.splitter_args", "[{'alpha': 0.3}]", "federate.client_num", 3]
OTHERS = ["ggeur.geometry", "pooled", "ggeur.prototypes", "others"]
HEADS = {
    "ggeur": OTHERS,
    "lda": ["ggeur.closed_form", "lda"],
    "lda, shrinkage": ["ggeur.closed_form", "lda", "ggeur.lda.shrinkage", 0.3],
    "ridge": ["ggeur.closed_form", "ridge", "ggeur.ridge.strength", 0.43],
    "ncm": ["ggeur.closed_form", "ncm"],
}


def sums_of(config):
    return Run(config(*SUMS, *OTHERS)).settings.role.of(SumSettings)


@pytest.mark.parametrize("name", HEADS)
def test_it_has_the_means_of_few_rows_of_others(config, name):
    run = Run(config(*SUMS, *SKEWED, *HEADS[name]))
    found = only(a11(recorded(run), rows_of(run), CLOCK))
    assert (found.adversary, found.level) == ("lying", "rows")
    assert (found.value, found.tried, found.passed) == (8.0, 8, False)


def test_what_it_adds_is_what_such_rows_would(config):
    """Its sums beside those of a client that has all the rows it claims."""
    settings = sums_of(config)
    dim, classes, radius = settings.dim, settings.num_classes, settings.radius
    x, y = gaussian(0, 30, dim), torch.arange(30) % classes
    rows = torch.zeros(classes, dtype=torch.int64)
    rows[2], rows[5] = 5, 4 * dim
    claim = Claim(1, rows, 5, 4 * radius**2)
    liar = lying(1, x, y, settings, claim)._rows
    axes = radius * torch.eye(dim).repeat(2, 1)
    more = torch.cat([torch.zeros(5, dim), axes, -axes])
    labels = torch.tensor([2, 5]).repeat_interleave(rows[rows > 0])
    having = ClientRows(torch.cat([x, more]), torch.cat([y, labels]), settings)
    named = Named((1, 2, 5), (20, 9, 400))
    origin = gaussian(1, 1, dim)[0]
    assert (liar.counts() == having.counts()).all()
    assert (liar.means(named)[:-4] == having.means(named)[:-4]).all()
    assert not liar.means(named)[-4:].any()
    apart = (liar.pooled(named, origin) - having.pooled(named, origin)).view("int64")
    assert abs(apart).max() < 2**settings.fraction_bits * 1e-6


def test_the_liar_is_who_has_most_to_gain_and_keeps_within_bounds(config):
    settings = sums_of(config)
    clients = {}
    for k, held in ((1, [9, 9, 0, 9]), (2, [1, 9, 0, 9]), (3, [0, 1, 9, 9])):
        y = torch.repeat_interleave(torch.arange(4), torch.tensor(held))
        clients[k] = gaussian(k, len(y), settings.dim), y
    truth = truth_of(clients)
    claim = a_claim(truth, settings)
    assert claim.liar == 1
    assert claim.rows[0] == settings.min_samples
    assert claim.rows[[1, 2]].tolist() == [0, 0]
    assert claim.known == 3
    assert int(claim.rows.sum() + truth.totals.sum()) <= settings.max_rows
    assert 0 not in clients[1][1][spoken_of(claim, clients[1][1])]


def test_where_the_others_hold_enough_of_all_there_is_nothing(config):
    settings = sums_of(config)
    y = torch.arange(4).repeat(9)
    truth = truth_of({k: (gaussian(k, 36, settings.dim), y) for k in (1, 2, 3)})
    assert a_claim(truth, settings) is None


def test_a_run_that_is_refused_gives_nothing_away(config):
    run = Run(config(*SUMS, *SKEWED, *OTHERS))
    seen = recorded(run)
    refused = transcript([*SUMS, *OTHERS], lied=Lied(seen.lied.claim, None, "too long"))
    found = only(a11(refused, rows_of(run), CLOCK))
    assert (found.value, found.passed) == (0.0, True)
    assert "too long" in found.note


def test_step_1_alone_sends_no_means(config):
    settings = ["ggeur.geometry", "pooled", "ggeur.steps", [1]]
    run = Run(config(*SUMS, *SKEWED, *settings))
    found = only(a11(recorded(run), rows_of(run), CLOCK))
    assert (found.passed, found.tried) == (None, None)


@pytest.mark.parametrize(("n", "dim"), [(400, 20), (60, 20), (40, 80)])
def test_ledoit_and_wolfs_rule_is_scikit_learns_on_gaussian_data(n, dim):
    """Both estimate one number, the share that brings S nearest to the truth."""
    rng = np.random.default_rng(n)
    mine, theirs = [], []
    for _ in range(20):
        rows = rng.normal(size=(n, dim)) * np.linspace(0.3, 2, dim)
        covariance = torch.from_numpy(np.cov(rows, rowvar=False))
        mine.append(ledoit_wolf(covariance, n - 1))
        theirs.append(other_ledoit_wolf(rows)[1])
    assert np.mean(mine) == pytest.approx(np.mean(theirs), rel=0.1)
