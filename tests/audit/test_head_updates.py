"""A4 and A5: one row in the first update of a head."""

import torch
from planted import CLOCK, gaussian, only, transcript, truth_of

from federatedscope_ggeur.audit.base import Update
from federatedscope_ggeur.audit.head_updates import a4, a5, guess
from federatedscope_ggeur.geometry import Space

DIM = 12


def step(x, y, classes=4):
    """One step of gradient descent of the cross-entropy from 0."""
    one_hot = torch.nn.functional.one_hot(y, classes).float()
    error = 1 / classes - one_hot
    return Update(-error.T @ x / len(x), -error.mean(dim=0))


def federation(single):
    x = torch.cat([gaussian(1, 20, DIM), gaussian(2, single, DIM)])
    y = torch.cat([torch.zeros(20), torch.ones(single)]).long()
    clients = {1: (x, y)}
    return clients, truth_of(clients)


def test_the_one_row_of_a_class_is_in_the_update():
    clients, truth = federation(single=1)
    update = step(*clients[1])
    seen = transcript(updates={1: update}, space=Space.raw(DIM))
    found = only(a4(seen, truth, CLOCK))
    assert (found.value, found.passed) == (1.0, False)
    row = clients[1][0][-1].double()
    along = guess(update, 1, torch.tensor([2, 3]))
    assert float(torch.cosine_similarity(along, row, dim=0)) > 0.9999


def test_of_two_rows_none_is():
    clients, truth = federation(single=2)
    seen = transcript(updates={1: step(*clients[1])}, space=Space.raw(DIM))
    found = only(a4(seen, truth, CLOCK))
    assert found.value is None
    assert found.passed is None


def test_in_an_update_of_noise_it_is_not():
    _, truth = federation(single=1)
    noise = Update(gaussian(9, 4, DIM), gaussian(9, 1, 4)[0])
    found = only(a4(transcript(updates={1: noise}, space=Space.raw(DIM)), truth, CLOCK))
    assert (found.value, found.passed) == (0.0, True)
    assert "not recovered in 3600 s" in found.note


def test_biases_say_which_classes_a_client_holds_and_noise_does_not():
    clients, truth = federation(single=1)
    seen = transcript(updates={1: step(*clients[1])}, space=Space.raw(DIM))
    assert only(a5(seen, truth, CLOCK)).value == 1.0
    many = dict.fromkeys(range(1, 101), clients[1])
    noise = {k: Update(gaussian(k, 4, DIM), gaussian(k, 1, 4)[0]) for k in many}
    found = only(a5(transcript(updates=noise), truth_of(many), CLOCK))
    assert abs(found.value - 0.5) < 0.15
    assert found.passed is None


def test_without_rounds_there_is_nothing():
    _, truth = federation(single=1)
    for attack in (a4, a5):
        assert only(attack(transcript(), truth, CLOCK)).value is None
