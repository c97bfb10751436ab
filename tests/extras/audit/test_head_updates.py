"""A4 and A5: few rows of a class in the first updates of a head."""

import pytest
import torch
from planted import CLOCK, gaussian, only, transcript, truth_of

from federatedscope_ggeur.extras.audit.base import Clock, Update
from federatedscope_ggeur.extras.audit.released import a4, a5, guesses
from federatedscope_ggeur.federation.exchanges.augmentation.messages import Prototypes
from federatedscope_ggeur.geometry import Space

DIM = 12


def step(x, y, classes=4):
    """One step of gradient descent of the cross-entropy from 0."""
    one_hot = torch.nn.functional.one_hot(y, classes).float()
    error = 1 / classes - one_hot
    return Update(-error.T @ x / len(x), -error.mean(dim=0))


def federation(few):
    """One client with `few` rows of class 1, and 40 such rows of nobody."""
    x = torch.cat([gaussian(1, 20, DIM), gaussian(2, few, DIM)])
    y = torch.cat([torch.zeros(20), torch.ones(few)]).long()
    others = gaussian(3, 40, DIM), torch.ones(40, dtype=torch.int64)
    clients = {1: (x, y)}
    return clients, truth_of(clients, others)


def attacked(truth, *updates, clock=CLOCK, **seen):
    sent = {1: updates} if updates else {}
    seen = transcript(updates=sent, trains=True, space=Space.raw(DIM), **seen)
    return only(a4(seen, truth, clock))


def test_the_one_row_of_a_class_is_in_the_update():
    clients, truth = federation(few=1)
    update = step(*clients[1])
    found = attacked(truth, update)
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
    clients, truth = federation(few=5)
    found = attacked(truth, step(*clients[1]))
    assert (found.passed, found.tried) == (None, None)
    assert "up to 4 rows" in found.note


def test_in_an_update_of_noise_it_is_not():
    _, truth = federation(few=1)
    noise = [Update(gaussian(k, 4, DIM), gaussian(k, 1, 4)[0]) for k in (8, 9)]
    found = attacked(truth, *noise)
    assert (found.value, found.passed) == (0.0, True)
    assert "1 or more fail" in found.note


def test_with_as_much_noise_in_each_of_several_updates_it_is_in_their_sum():
    clients, truth = federation(few=1)
    row, truths = clients[1][0][-1], []
    for rounds in (1, 40):
        noise = [gaussian(50 + i, 4, DIM) * 5 for i in range(rounds)]
        noisy = []
        for one in noise:
            one[2:] = 0  # absent classes do not move
            one[1] += row
            noisy.append(Update(one, torch.zeros(4)))
        truths.append(attacked(truth, *noisy))
    assert [found.value for found in truths] == [0.0, 1.0]


def test_what_the_server_sent_for_step_2_is_taken_off():
    """An update along a class mean that went down hides the row from a plain cosine."""
    clients, truth = federation(few=1)
    row, mean = clients[1][0][-1], gaussian(70, 1, DIM)
    weight = torch.zeros(4, DIM)
    weight[1] = row + 30 * mean[0]
    update = Update(weight, torch.zeros(4))
    sent = {1: Prototypes(torch.tensor([1]), mean)}
    assert attacked(truth, update).value == 0.0
    found = attacked(truth, update, prototypes=sent)
    assert (found.value, found.passed) == (1.0, False)
    assert "0 rows recovered" in found.note


def test_too_few_known_rows_give_no_verdict():
    x, y = torch.cat([gaussian(1, 20, DIM), gaussian(2, 1, DIM)]), torch.zeros(21)
    y[-1] = 1
    others = gaussian(3, 3, DIM), torch.ones(3, dtype=torch.int64)
    truth = truth_of({1: (x, y.long())}, others)
    noise = Update(gaussian(8, 4, DIM), gaussian(8, 1, 4)[0])
    found = attacked(truth, noise)
    assert (found.passed, found.tried, found.limit) == (None, 1, None)
    assert "too few known rows" in found.note


def test_what_is_not_tried_is_said():
    clients, truth = federation(few=1)
    for found in (
        attacked(truth),
        attacked(truth, step(*clients[1]), clock=Clock(-1)),
    ):
        assert (found.passed, found.tried) == (None, 0)
        assert found.note.startswith("not tried")


def test_biases_say_which_classes_a_client_holds_and_noise_does_not():
    clients, truth = federation(few=1)
    update = step(*clients[1])
    seen = transcript(updates={1: (update,)}, space=Space.raw(DIM))
    assert only(a5(seen, truth, CLOCK)).value == 1.0
    many = dict.fromkeys(range(1, 101), clients[1])
    noise = {k: (Update(gaussian(k, 4, DIM), gaussian(k, 1, 4)[0]),) for k in many}
    found = only(a5(transcript(updates=noise), truth_of(many), CLOCK))
    assert abs(found.value - 0.5) < 0.15
    assert found.passed is None


def test_without_rounds_there_is_nothing():
    _, truth = federation(few=1)
    for attack in (a4, a5):
        found = only(attack(transcript(), truth, CLOCK))
        assert (found.value, found.tried) == (None, None)
