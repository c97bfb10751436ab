"""A9 and S1 to S4: they succeed where a rule is broken, and fail where it is kept.

A2, A3, A8, A10: members are told where something says so, and not by chance.

Tests of audit/known_rows.py, too: A1 and A1b, which solve for rows.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import (
    CLOCK,
    finding_of,
    gaussian,
    head_of,
    merged,
    only,
    owned,
    relu_rows,
    transcript,
    truth_of,
    uploaded,
)
from private_words import LDA as LDA_WORDS
from private_words import OTHERS, SHRUNK_LDA, SUMS
from scipy import stats
from sklearn.covariance import ledoit_wolf as other_ledoit_wolf

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.audit.answers import a13, numbers_of
from federatedscope_ggeur.extras.audit.base import (
    Claim,
    Clock,
    HeadUpdate,
    Lied,
    Report,
    auc,
    hit_rate,
    more_than_chance,
)
from federatedscope_ggeur.extras.audit.head_updates import a4, a5, guesses
from federatedscope_ggeur.extras.audit.known_rows import (
    a1,
    a1b,
    a2,
    a3,
    a8,
    a10,
    by_norms,
    by_vertices,
)
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
from federatedscope_ggeur.extras.audit.told_numbers import a6, a7
from federatedscope_ggeur.extras.audit.transcript import recorded
from federatedscope_ggeur.extras.audit.transcript import truth_of as rows_of
from federatedscope_ggeur.extras.secure_sums.settings import SumSettings
from federatedscope_ggeur.extras.secure_sums.vectors import (
    ClientRows,
    Named,
    decode,
    parted,
)
from federatedscope_ggeur.federation.exchanges.augmentation import messages
from federatedscope_ggeur.federation.exchanges.closed_form.messages import (
    HitCounts,
    LeaveOneOut,
    LogLosses,
    LossQuery,
)
from federatedscope_ggeur.geometry import GeometricShape, Space, Statistics
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.closed_forms import (
    Components,
    ScoredRows,
    left_out_hits,
    left_out_losses,
    temperatures,
)

LDA = {"shrinkage": 0.1}


def by_head(attack, clients, name="lda", options=None, clock=CLOCK, **more):
    """The finding of an attack that sees a head of the clients, and `more`."""
    but, classes = more.pop("but", ()), more.pop("classes", 4)
    options = LDA if name == "lda" else options
    form, head, kept = head_of(clients, name, options, classes, but)
    seen = {"form": form, "head": head, "head_classes": kept, **more}
    return finding_of(attack, truth_of(clients, classes=classes), clock, **seen)


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
        one = finding_of(s1, truth_of(clients), prototypes=dict.fromkeys(clients, sent))
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
        assert finding_of(s3, truth_of(clients)).passed is None


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
        seen = {"uploads": uploaded(clients), "geometry": messages.Geometry(shapes)}
        found = finding_of(a9, truth_of(clients), **seen)
        assert found.value == len(shapes)
        assert found.passed is False

    def test_of_three_nobody_does(self):
        clients = owned(dim=200, rows=8, few=5, others=6)
        found = finding_of(a9, truth_of(clients), uploads=uploaded(clients))
        assert found.passed is None


def test_nobody_owns_nearly_all_of_anything():
    clients = owned(few=20)
    for attack in (s1, s2, s3, s4):
        found = finding_of(attack, truth_of(clients))
        assert found.passed is None
        assert "no client owns nearly all" in found.note


# A11: one client that lies in the secure sums has the others' rows.


SKEWED = ["data.splitter_args", "[{'alpha': 0.3}]", "federate.client_num", 3]
HEADS = {
    "ggeur": OTHERS,
    "lda": LDA_WORDS,
    "lda, shrinkage": SHRUNK_LDA,
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


@pytest.mark.parametrize("bits", [38, 70])
def test_what_it_adds_is_what_such_rows_would(config, bits):
    """Its sums beside those of a client that has all the rows it claims."""
    settings = replace(sums_of(config), fraction_bits=bits)
    limbs = settings.limbs("means")
    assert limbs == (1 if bits == 38 else 2)
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
    numbers, flags = parted(liar.means(named), 3 * dim, limbs)
    wanted = parted(having.means(named), 3 * dim, limbs)[0]
    for one, other, size in (
        (numbers, wanted, radius),
        (liar.pooled(named, origin), having.pooled(named, origin), radius**2),
    ):
        one, other = (decode(ring, bits, limbs) for ring in (one, other))
        # Rows are float32. The longest ones make the error.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * size)
    assert not flags.any()


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


DIM = 40


def federation(rows=20, dim=DIM, seed=0):
    """Three clients with two classes each, and as many rows that none holds."""
    clients = {
        k: (gaussian(seed + k, 2 * rows, dim), torch.arange(2 * rows) % 2)
        for k in (1, 2, 3)
    }
    others = gaussian(seed + 99, 6 * rows, dim), torch.arange(6 * rows) % 2
    return clients, truth_of(clients, others, classes=2)


@pytest.mark.parametrize(
    ("content", "rows", "dim", "tells"),
    [("class", 12, DIM, True), ("pooled", 12, DIM, True), ("means", 400, 5, False)],
)
def test_one_upload_tells_members_unless_it_is_means_of_many(content, rows, dim, tells):
    clients, truth = federation(rows=rows, dim=dim)
    found = finding_of(a2, truth, uploads=uploaded(clients, classes=2, content=content))
    assert found.value > 0.99 if tells else found.value < 0.58
    assert found.passed is not tells


def test_shapes_of_classes_tell_every_client():
    clients, truth = federation(rows=9)
    held = merged(clients, 2)
    shapes = {c: GeometricShape.from_statistics(held, c) for c in held.classes}
    geometry = messages.Geometry(shapes)
    found = finding_of(a3, truth, geometry=geometry, space=Space.raw(DIM))
    assert found.value == 1.0
    assert found.observer == "client 1"


def test_so_do_scatters_of_classes_to_leave_rows_out_of():
    clients, truth = federation(rows=9)
    uploads = uploaded(clients, classes=2)
    parts = [Components.of_client(u, k, "a", ("a",)) for k, u in uploads.items()]
    whole = Components.joined(parts).with_scatters_of(merged(clients, 2))
    left_out = LeaveOneOut(whole)
    assert finding_of(a3, truth, left_out=left_out).value > 0.99
    assert finding_of(a6, truth, uploads=uploads, left_out=left_out).value == 2.0


def test_a_pooled_shape_of_many_rows_does_not():
    clients, truth = federation(rows=400, dim=5)
    shape = GeometricShape.pooled(merged(clients, 2).to("pooled"))
    geometry = messages.Geometry({0: shape, 1: shape}, pooled=True)
    found = finding_of(a3, truth, geometry=geometry, space=Space.raw(5))
    assert found.value < 0.58
    assert found.passed is True


@pytest.mark.parametrize(("rows", "dim", "near"), [(3, DIM, True), (500, 5, False)])
def test_prototypes_of_few_rows_are_near_them_and_of_many_are_not(rows, dim, near):
    clients, truth = federation(rows=rows, dim=dim)
    means = [merged({k: clients[k]}, 2).means.float() for k in (2, 3)]
    prototypes = {1: messages.Prototypes(torch.tensor([0, 1, 0, 1]), torch.cat(means))}
    found = finding_of(a8, truth, prototypes=prototypes, space=Space.raw(dim))
    assert found.value > 0.65 if near else found.value < 0.58
    assert found.passed is not near


@pytest.mark.parametrize(("rows", "fails"), [(14, True), (2000, False)])
def test_sums_tell_members_where_rows_are_few(rows, fails):
    clients, truth = federation(rows=rows, dim=DIM if fails else 5)
    held = merged(clients, 2).to("pooled")
    found = finding_of(a10, truth, summed=held)
    assert (found.passed is False) == fails
    assert found.low <= found.value <= found.high


def test_where_nothing_goes_nothing_is_told():
    _, truth = federation()
    for attack in (a1, a1b, a2, a3, a4, a5, a7, a8, a10):
        found = finding_of(attack, truth)
        assert (found.value, found.passed, found.tried) == (None, None, None)


def test_scores_of_members_are_not_better_by_chance_than_of_others():
    """Members of another federation are no members."""
    _, truth = federation(rows=12)
    strangers, _ = federation(rows=12, seed=500)
    found = finding_of(a2, truth, uploads=uploaded(strangers, classes=2))
    assert abs(found.value - 0.5) < 0.15
    assert np.isfinite(found.value)


def one_class(rows):
    return {1: (rows, torch.zeros(len(rows), dtype=torch.int64))}


@pytest.mark.parametrize("n", [2, 5, 8])
def test_rows_that_are_not_negative_are_recovered(n):
    clients = one_class(relu_rows(n, n))
    found = finding_of(a1, truth_of(clients), uploads=uploaded(clients))
    assert found.value == n
    assert found.passed is False


@pytest.mark.slow
def test_rows_without_zeros_are_not():
    clients = one_class(gaussian(0, 6, dim=40, shift=50.0))
    found = finding_of(a1, truth_of(clients), Clock(3), uploads=uploaded(clients))
    assert found.value == 0 or found.value is None
    assert "safe" not in found.note


def test_a_pooled_scatter_of_two_classes_is_no_target_and_of_one_it_is():
    x, y = relu_rows(3, 10), torch.arange(10) % 2
    clients = {1: (x, y)}
    pooled = uploaded(clients, content="pooled")
    found = finding_of(a1, truth_of(clients), uploads=pooled)
    assert found.value is None
    clients = one_class(relu_rows(4, 5))
    pooled = uploaded(clients, content="pooled")
    assert finding_of(a1, truth_of(clients), uploads=pooled).value == 5


@pytest.mark.parametrize("n", [2, 3, 4])
def test_rows_of_length_1_are_recovered_by_their_norms(n):
    x = gaussian(n, n, dim=30)
    x = x / x.norm(dim=1, keepdim=True)
    clients = one_class(x)
    found = finding_of(a1b, truth_of(clients), uploads=uploaded(clients))
    assert found.value >= (n if n < 4 else 1)
    assert found.passed is False


def test_rows_of_other_lengths_are_not():
    clients = one_class(gaussian(1, 4, dim=30))
    found = finding_of(a1b, truth_of(clients), uploads=uploaded(clients))
    assert found.value == 0
    assert "not recovered in 3600 s" in found.note


def test_no_time_finds_nothing_and_says_so():
    held = Statistics.from_embeddings(relu_rows(1, 5), torch.zeros(5).long(), 1)
    args = held.means[0], held.factor(0), 5, Clock(0), 0
    assert len(by_vertices(*args)) == 0
    assert len(by_norms(*args)) == 0


# The area under the curve and rates, by plain oracles.


def test_auc_by_all_pairs():
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 9, 40) + 1.0, rng.integers(0, 9, 30) * 1.0
    pairs = [(a > b) + 0.5 * (a == b) for a in one for b in other]
    value, low, high = auc(one, other)
    assert value == pytest.approx(np.mean(pairs), abs=1e-12)
    assert low < value < high


def test_the_interval_holds_as_often_as_it_says():
    rng = np.random.default_rng(1)
    right = stats.norm.cdf(1 / 2**0.5)
    inside = 0
    for _ in range(400):
        _, low, high = auc(rng.normal(1, 1, 60), rng.normal(0, 1, 60))
        inside += low <= right <= high
    assert 0.91 < inside / 400 < 0.98


def test_members_above_all_but_one_percent_of_the_others():
    members, others = np.arange(100) + 0.5, np.arange(100) * 1.0
    rate, low = hit_rate(members + 90, others, 0.01, 1)
    assert rate == 0.91
    assert low == pytest.approx(stats.beta.ppf(0.05, 91, 10))
    assert hit_rate(members - 200, others, 0.01, 1) == (0.0, 0.0)


@pytest.mark.parametrize(("tries", "p"), [(1, 0.04), (1, 0.06), (20, 0.1), (200, 0.02)])
def test_hits_that_are_no_chance_by_the_binomial(tries, p):
    least = more_than_chance([p] * tries)
    assert stats.binom.sf(least - 1, tries, p) <= 0.05
    assert least == tries + 1 or stats.binom.sf(least - 2, tries, p) > 0.05


def test_hits_of_unlike_chances():
    rng = np.random.default_rng(0)
    chances = rng.random(30) / 3
    hits = (rng.random((20000, 30)) < chances).sum(axis=1)
    least = more_than_chance(chances)
    assert (hits >= least).mean() < 0.06
    assert (hits >= least - 1).mean() > 0.04


def test_verdicts():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(2, 500))
    report = Report("A", "x", "membership")
    (passed,) = report.membership(*noise)
    assert (passed.passed, passed.chance, passed.tried) == (True, 0.5, 500)
    least = 0.60 + passed.value - passed.low
    assert f"about {least:.2f} or more fail" in passed.note
    assert report.membership(noise[0] + 1, noise[1])[0].passed is False
    assert report.membership(noise[0], np.zeros(0))[0].passed is None


# A13: rows of withheld classes in what clients answer about heads.


ANSWERED_CLASSES, ANSWERED_DIM, LEAST, CLIENTS = 8, 12, 5, 6
FORM = CLOSED_FORMS["lda"]()
QUERY = LossQuery((2, 9), (temperatures(4.0), temperatures(2.0)), True)


def drawn_rows(labels, seed):
    return 0.7 * gaussian(5, ANSWERED_CLASSES, ANSWERED_DIM)[labels] + gaussian(
        seed, len(labels), ANSWERED_DIM
    )


def federation_of_few(few=1):
    """Six clients have 10 rows of six classes each, and `few` of the two others; 25
    rows of each class are nobody's."""
    clients = {}
    for k in range(1, CLIENTS + 1):
        few_of = {k % ANSWERED_CLASSES, (k + 1) % ANSWERED_CLASSES}
        sizes = [few if c in few_of else 10 for c in range(ANSWERED_CLASSES)]
        y = torch.repeat_interleave(torch.arange(ANSWERED_CLASSES), torch.tensor(sizes))
        clients[k] = drawn_rows(y, k), y
    y = torch.arange(ANSWERED_CLASSES).repeat(25)
    return clients, truth_of(clients, (drawn_rows(y, 99), y), ANSWERED_CLASSES)


def sent(clients):
    """Their statistics, and the components of all."""
    uploads = uploaded(clients, LEAST, ANSWERED_CLASSES)
    parts = [Components.of_client(u, k, "a", ("a",)) for k, u in uploads.items()]
    return uploads, LeaveOneOut(Components.joined(parts).merged("class"))


def parts_of(k, x, y, is_sent):
    """The rows in the statistics, and the others."""
    return [
        ScoredRows(x[kept], y[kept], k, 0, torch.full((int(kept.sum()),), inside))
        for kept, inside in ((is_sent, True), (~is_sent, False))
    ]


def losses_by_hand(left_out, rows):
    """The summed log-losses of the two candidates with their floors."""
    each = [
        left_out_losses(left_out.scores(FORM, candidate), rows, by, QUERY.floors)[0]
        for candidate, by in zip(QUERY.candidates, QUERY.temperatures)
    ]
    return torch.cat(each).view(QUERY.shape)


def answered(truth, uploads, left_out, number_of_parts):
    """What clients answer on the first part, or on both: an earlier protocol."""
    hits, losses = {}, {}
    for k, (x, y) in truth.clients.items():
        parts = parts_of(k, x, y, uploads[k].counts[y] > 0)[:number_of_parts]
        scored = sum(len(rows) for rows in parts)
        score = left_out.scores(FORM)
        found = sum(left_out_hits(score, rows) for rows in parts)
        hits[k] = HitCounts(k, len(y), found, 0, scored)
        total = sum(losses_by_hand(left_out, rows) for rows in parts)
        losses[k] = LogLosses(k, scored, (64 * total).round().long())
    return hits, losses


def attacked(truth, number_of_parts, told=("hits", "log_losses"), clock=CLOCK):
    uploads, left_out = sent(truth.clients)
    hits, losses = answered(truth, uploads, left_out, number_of_parts)
    return finding_of(
        a13,
        truth,
        clock,
        form=FORM,
        uploads=uploads,
        left_out=left_out,
        loss_query=QUERY,
        domains=dict.fromkeys(truth.clients, "a"),
        hits=hits if "hits" in told else {},
        log_losses=losses if "log_losses" in told else {},
    )


@pytest.mark.parametrize("told", [("log_losses",), ("hits", "log_losses")])
def test_where_withheld_rows_are_in_the_numbers_they_are_found(told):
    """Each client has a row of two withheld classes."""
    _, truth = federation_of_few()
    found = attacked(truth, 2, told)
    assert (found.tried, found.passed) == (12, False)
    assert found.chance < 0.5
    assert found.value == 12.0


def test_where_they_are_not_chance_has_as_much():
    _, truth = federation_of_few()
    found = attacked(truth, 1)
    assert found.passed is True
    assert found.value <= found.limit
    assert "the numbers of 6 clients contain no withheld row" in found.note


def test_what_each_row_contributes_adds_up():
    clients, _ = federation_of_few()
    uploads, left_out = sent(clients)
    x, y = clients[3]
    for rows in parts_of(3, x, y, uploads[3].counts[y] > 0):
        numbers = numbers_of(rows, FORM, left_out, QUERY)
        score = left_out.scores(FORM)
        assert torch.equal(numbers.hits.sum(dim=0), left_out_hits(score, rows).double())
        total = 64 * losses_by_hand(left_out, rows).flatten()
        torch.testing.assert_close(numbers.losses.sum(dim=0), total)


def test_without_answers_or_withheld_classes_there_is_nothing():
    _, truth = federation_of_few()
    assert finding_of(a13, truth).tried is None
    _, truth = federation_of_few(few=10)
    found = attacked(truth, 2)
    assert (found.passed, found.tried) == (None, None)
    assert found.note == "no client has a withheld class"


def test_no_time_is_no_pass():
    _, truth = federation_of_few()
    found = attacked(truth, 2, clock=Clock(-1))
    assert (found.passed, found.tried) == (None, 0)


# A4 and A5: few rows of a class in the first updates of a head.


UPDATE_DIM = 12


def step(x, y, classes=4):
    """One step of gradient descent of the cross-entropy from 0."""
    one_hot = torch.nn.functional.one_hot(y, classes).float()
    error = 1 / classes - one_hot
    return HeadUpdate(-error.T @ x / len(x), -error.mean(dim=0))


def noise_of(seed):
    return HeadUpdate(gaussian(seed, 4, UPDATE_DIM), gaussian(seed, 1, 4)[0])


def training_clients(few, known=40):
    """One client with `few` rows of class 1, and so many `known` rows of nobody."""
    x = torch.cat([gaussian(1, 20, UPDATE_DIM), gaussian(2, few, UPDATE_DIM)])
    y = torch.cat([torch.zeros(20), torch.ones(few)]).long()
    others = gaussian(3, known, UPDATE_DIM), torch.ones(known, dtype=torch.int64)
    clients = {1: (x, y)}
    return clients, truth_of(clients, others)


def attacked_updates(truth, *updates, clock=CLOCK, **seen):
    seen |= {"updates": {1: updates} if updates else {}, "trains": True}
    return finding_of(a4, truth, clock, space=Space.raw(UPDATE_DIM), **seen)


def test_the_one_row_of_a_class_is_in_the_update():
    clients, truth = training_clients(few=1)
    update = step(*clients[1])
    found = attacked_updates(truth, update)
    assert (found.value, found.tried, found.passed) == (1.0, 1, False)
    assert found.chance == pytest.approx(1 / 41)
    assert "1 rows recovered" in found.note
    row = clients[1][0][-1].double()
    along = guesses([update], 1, torch.tensor([2, 3]))
    assert float(torch.cosine_similarity(along[-1], row, dim=0)) > 0.9999


@pytest.mark.parametrize("few", [2, 3, 4])
def test_of_a_few_rows_one_is_the_nearest_of_all(few):
    """Three clients, so that chance hardly hits them all."""
    clients, dim = {}, 100
    for k in (1, 2, 3):
        x = torch.cat([gaussian(k, 20, dim), gaussian(k + 9, few, dim)])
        clients[k] = x, torch.cat([torch.zeros(20), torch.ones(few)]).long()
    others = gaussian(30, 40, dim), torch.ones(40, dtype=torch.int64)
    updates = {k: (step(*held),) for k, held in clients.items()}
    seen = {"updates": updates, "trains": True, "space": Space.raw(dim)}
    found = finding_of(a4, truth_of(clients, others), **seen)
    assert (found.value, found.tried, found.passed) == (3.0, 3, False)
    assert found.chance == pytest.approx(3 * few / (3 * few + 40))


def test_five_rows_are_not_attacked():
    clients, truth = training_clients(few=5)
    found = attacked_updates(truth, step(*clients[1]))
    assert (found.passed, found.tried) == (None, None)
    assert "up to 4 rows" in found.note


def test_in_an_update_of_noise_it_is_not():
    _, truth = training_clients(few=1)
    found = attacked_updates(truth, noise_of(8), noise_of(9))
    assert (found.value, found.passed) == (0.0, True)
    assert "1 or more fail" in found.note


def test_with_as_much_noise_in_each_of_several_updates_it_is_in_their_sum():
    clients, truth = training_clients(few=1)
    row, truths = clients[1][0][-1], []
    for rounds in (1, 40):
        noise = [gaussian(50 + i, 4, UPDATE_DIM) * 5 for i in range(rounds)]
        noisy = []
        for one in noise:
            one[2:] = 0  # absent classes do not move
            one[1] += row
            noisy.append(HeadUpdate(one, torch.zeros(4)))
        truths.append(attacked_updates(truth, *noisy))
    assert [found.value for found in truths] == [0.0, 1.0]


def test_what_the_server_sent_for_step_2_is_taken_off():
    """An update along a class mean that went down hides the row from a plain cosine."""
    clients, truth = training_clients(few=1)
    row, mean = clients[1][0][-1], gaussian(70, 1, UPDATE_DIM)
    weight = torch.zeros(4, UPDATE_DIM)
    weight[1] = row + 30 * mean[0]
    update = HeadUpdate(weight, torch.zeros(4))
    sent = {1: messages.Prototypes(torch.tensor([1]), mean)}
    assert attacked_updates(truth, update).value == 0.0
    found = attacked_updates(truth, update, prototypes=sent)
    assert (found.value, found.passed) == (1.0, False)
    assert "0 rows recovered" in found.note


def test_too_few_known_rows_give_no_verdict():
    _, truth = training_clients(few=1, known=3)
    found = attacked_updates(truth, noise_of(8))
    assert (found.passed, found.tried, found.limit) == (None, 1, None)
    assert "too few known rows" in found.note


def test_what_is_not_tried_is_said():
    clients, truth = training_clients(few=1)
    for found in (
        attacked_updates(truth),
        attacked_updates(truth, step(*clients[1]), clock=Clock(-1)),
    ):
        assert (found.passed, found.tried) == (None, 0)
        assert found.note.startswith("not tried")


def test_biases_say_which_classes_a_client_holds_and_noise_does_not():
    clients, truth = training_clients(few=1)
    update = step(*clients[1])
    seen = {"updates": {1: (update,)}, "space": Space.raw(UPDATE_DIM)}
    assert finding_of(a5, truth, **seen).value == 1.0
    many = dict.fromkeys(range(1, 101), clients[1])
    noise = {k: (noise_of(k),) for k in many}
    found = finding_of(a5, truth_of(many), updates=noise)
    assert abs(found.value - 0.5) < 0.15
    assert found.passed is None


# A6 and A7: numbers of rows from ranks and from what a client counts for.


def counted_clients():
    y = torch.repeat_interleave(torch.arange(4), torch.tensor([9, 3, 7, 0]))
    clients = {1: (gaussian(0, len(y), 40), y)}
    return clients, truth_of(clients)


def shapes(clients, pooled=False):
    held = Statistics.from_embeddings(*clients[1], 4)
    held = held.restrict([0, 2])
    if pooled:
        one = GeometricShape.pooled(held.to("pooled"))
        return messages.Geometry(dict.fromkeys(range(4), one), pooled=True)
    return messages.Geometry(
        {c: GeometricShape.from_statistics(held, c) for c in (0, 2)}
    )


def test_ranks_tell_rows():
    clients, truth = counted_clients()
    uploads = uploaded(clients, least=5)
    found = finding_of(a6, truth, uploads=uploads, geometry=shapes(clients))
    assert (found.value, found.passed) == (2.0, False)


def test_a_pooled_shape_tells_none():
    clients, truth = counted_clients()
    assert finding_of(a6, truth, geometry=shapes(clients, pooled=True)).passed is None


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
    clients, truth = counted_clients()
    settings = ["ggeur.weight", weight, "ggeur.steps", steps, "ggeur.step1_size", "50"]
    found = finding_of(
        a7,
        truth,
        settings=settings,
        uploads=uploaded(clients, least=5),
        geometry=shapes(clients),
        replies={1: messages.PrepareReply(1, float(counts_for))},
    )
    assert found.value == known
    assert found.passed == (not known)
