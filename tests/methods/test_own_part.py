"""A part of a model that stays a client's own."""

import torch
from tiny_networks import federation

from federatedscope_ggeur.methods import LocalContext, LocalOutcome
from federatedscope_ggeur.methods.own_part import keeping, with_own

OWN = torch.tensor([False, True, False, True, True])


def context(state):
    model = federation().server.model
    sent = torch.arange(5.0)
    rest = ({}, {}, state, torch.zeros(4), 1, None, 0)
    return LocalContext(1, 2, model, sent[:3], *rest, weights=sent)


def test_what_it_keeps_it_starts_from():
    first = keeping(context({}), OWN)
    assert torch.equal(first.start, torch.arange(5.0))
    trained = torch.tensor([9.0, 8.0, 7.0, 6.0, 5.0])
    empty = torch.zeros(0)
    upload, state = first.finish(LocalOutcome(trained[:3], 1, empty, empty, trained))
    assert upload == {}
    assert state["own"].tolist() == [8, 6, 5]
    later = context(state)
    wanted = [0, 8, 2, 6, 5]
    assert keeping(later, OWN).start.tolist() == wanted
    assert with_own(later, OWN).tolist() == wanted
    assert later.weights.tolist() == [0, 1, 2, 3, 4]
