"""A13: rows of withheld classes in what clients answer about heads."""

import pytest
import torch
from planted import CLOCK, gaussian, only, transcript, truth_of, uploaded

from federatedscope_ggeur.extras.audit.answers import a13, numbers_of
from federatedscope_ggeur.extras.audit.base import Clock, HeadUpdate
from federatedscope_ggeur.extras.audit.released import a4, a5, guesses
from federatedscope_ggeur.extras.audit.told_numbers import a6, a7
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    PrepareReply,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.closed_form.choice import (
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

CLASSES, DIM, LEAST, CLIENTS = 8, 12, 5, 6
FORM = CLOSED_FORMS["lda"]()
QUERY = LossQuery((2, 9), (temperatures(4.0), temperatures(2.0)))


def rows_of(labels, seed):
    return 0.7 * gaussian(5, CLASSES, DIM)[labels] + gaussian(seed, len(labels), DIM)


def federation(few=1):
    """Six clients have 10 rows of six classes each, and `few` of the two others; 25
    rows of each class are nobody's."""
    clients = {}
    for k in range(1, CLIENTS + 1):
        few_of = {k % CLASSES, (k + 1) % CLASSES}
        sizes = [few if c in few_of else 10 for c in range(CLASSES)]
        y = torch.repeat_interleave(torch.arange(CLASSES), torch.tensor(sizes))
        clients[k] = rows_of(y, k), y
    y = torch.arange(CLASSES).repeat(25)
    return clients, truth_of(clients, (rows_of(y, 99), y), CLASSES)


def sent(clients):
    """Their statistics, and the components of all."""
    uploads = uploaded(clients, LEAST, CLASSES)
    parts = [Components.of_client(u, k, "a", ("a",)) for k, u in uploads.items()]
    return uploads, LeaveOneOut(Components.joined(parts).merged("class"))


def parts_of(k, x, y, is_sent):
    """The rows in the statistics, and the others."""
    return [
        ScoredRows(x[kept], y[kept], k, 0, torch.full((int(kept.sum()),), inside))
        for kept, inside in ((is_sent, True), (~is_sent, False))
    ]


def losses_by_hand(left_out, rows):
    """The summed log-losses of the two candidates: shape (2, 25)."""
    each = [
        left_out_losses(left_out.scores(FORM, candidate), rows, by)[0][0]
        for candidate, by in zip(QUERY.candidates, QUERY.temperatures)
    ]
    return torch.stack(each)


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
    seen = transcript(
        form=FORM,
        uploads=uploads,
        left_out=left_out,
        loss_query=QUERY,
        domains=dict.fromkeys(truth.clients, "a"),
        hits=hits if "hits" in told else {},
        log_losses=losses if "log_losses" in told else {},
    )
    return only(a13(seen, truth, clock))


@pytest.mark.slow
@pytest.mark.parametrize("told", [("log_losses",), ("hits", "log_losses")])
def test_where_withheld_rows_are_in_the_numbers_they_are_found(told):
    """Each client has a row of two withheld classes."""
    _, truth = federation()
    found = attacked(truth, 2, told)
    assert (found.tried, found.passed) == (12, False)
    assert found.chance < 0.5
    assert found.value == 12.0


@pytest.mark.slow
def test_where_they_are_not_chance_has_as_much():
    _, truth = federation()
    found = attacked(truth, 1)
    assert found.passed is True
    assert found.value <= found.limit
    assert "the numbers of 6 clients contain no withheld row" in found.note


def test_what_each_row_contributes_adds_up():
    clients, _ = federation()
    uploads, left_out = sent(clients)
    x, y = clients[3]
    for rows in parts_of(3, x, y, uploads[3].counts[y] > 0):
        numbers = numbers_of(rows, FORM, left_out, QUERY)
        score = left_out.scores(FORM)
        assert torch.equal(numbers.hits.sum(dim=0), left_out_hits(score, rows).double())
        total = 64 * losses_by_hand(left_out, rows).flatten()
        torch.testing.assert_close(numbers.losses.sum(dim=0), total)


@pytest.mark.slow
def test_without_answers_or_withheld_classes_there_is_nothing():
    _, truth = federation()
    assert only(a13(transcript(), truth, CLOCK)).tried is None
    _, truth = federation(few=10)
    found = attacked(truth, 2)
    assert (found.passed, found.tried) == (None, None)
    assert found.note == "no client has a withheld class"


@pytest.mark.slow
def test_no_time_is_no_pass():
    _, truth = federation()
    found = attacked(truth, 2, clock=Clock(-1))
    assert (found.passed, found.tried) == (None, 0)


# A4 and A5: few rows of a class in the first updates of a head.


UPDATE_DIM = 12


def step(x, y, classes=4):
    """One step of gradient descent of the cross-entropy from 0."""
    one_hot = torch.nn.functional.one_hot(y, classes).float()
    error = 1 / classes - one_hot
    return HeadUpdate(-error.T @ x / len(x), -error.mean(dim=0))


def training_clients(few):
    """One client with `few` rows of class 1, and 40 such rows of nobody."""
    x = torch.cat([gaussian(1, 20, UPDATE_DIM), gaussian(2, few, UPDATE_DIM)])
    y = torch.cat([torch.zeros(20), torch.ones(few)]).long()
    others = gaussian(3, 40, UPDATE_DIM), torch.ones(40, dtype=torch.int64)
    clients = {1: (x, y)}
    return clients, truth_of(clients, others)


def attacked_updates(truth, *updates, clock=CLOCK, **seen):
    sent = {1: updates} if updates else {}
    seen = transcript(updates=sent, trains=True, space=Space.raw(UPDATE_DIM), **seen)
    return only(a4(seen, truth, clock))


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
    seen = transcript(updates=updates, trains=True, space=Space.raw(dim))
    found = only(a4(seen, truth_of(clients, others), CLOCK))
    assert (found.value, found.tried, found.passed) == (3.0, 3, False)
    assert found.chance == pytest.approx(3 * few / (3 * few + 40))


def test_five_rows_are_not_attacked():
    clients, truth = training_clients(few=5)
    found = attacked_updates(truth, step(*clients[1]))
    assert (found.passed, found.tried) == (None, None)
    assert "up to 4 rows" in found.note


def test_in_an_update_of_noise_it_is_not():
    _, truth = training_clients(few=1)
    noise = [
        HeadUpdate(gaussian(k, 4, UPDATE_DIM), gaussian(k, 1, 4)[0]) for k in (8, 9)
    ]
    found = attacked_updates(truth, *noise)
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
    sent = {1: Prototypes(torch.tensor([1]), mean)}
    assert attacked_updates(truth, update).value == 0.0
    found = attacked_updates(truth, update, prototypes=sent)
    assert (found.value, found.passed) == (1.0, False)
    assert "0 rows recovered" in found.note


def test_too_few_known_rows_give_no_verdict():
    x, y = (
        torch.cat([gaussian(1, 20, UPDATE_DIM), gaussian(2, 1, UPDATE_DIM)]),
        torch.zeros(21),
    )
    y[-1] = 1
    others = gaussian(3, 3, UPDATE_DIM), torch.ones(3, dtype=torch.int64)
    truth = truth_of({1: (x, y.long())}, others)
    noise = HeadUpdate(gaussian(8, 4, UPDATE_DIM), gaussian(8, 1, 4)[0])
    found = attacked_updates(truth, noise)
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
    seen = transcript(updates={1: (update,)}, space=Space.raw(UPDATE_DIM))
    assert only(a5(seen, truth, CLOCK)).value == 1.0
    many = dict.fromkeys(range(1, 101), clients[1])
    noise = {
        k: (HeadUpdate(gaussian(k, 4, UPDATE_DIM), gaussian(k, 1, 4)[0]),) for k in many
    }
    found = only(a5(transcript(updates=noise), truth_of(many), CLOCK))
    assert abs(found.value - 0.5) < 0.15
    assert found.passed is None


# A6 and A7: numbers of rows from ranks and from what a client counts for.


COUNTS = [9, 3, 7, 0]


def counted_clients():
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
    clients, truth = counted_clients()
    uploads = uploaded(clients, least=5)
    seen = transcript(uploads=uploads, geometry=shapes(clients))
    found = only(a6(seen, truth, CLOCK))
    assert (found.value, found.passed) == (2.0, False)


def test_a_pooled_shape_tells_none():
    clients, truth = counted_clients()
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
    clients, truth = counted_clients()
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
