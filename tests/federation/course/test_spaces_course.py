"""The space in the course of a federation: who is told, and when clients fail."""

import pytest
import torch
from by_bytes import make_rows
from carrier import carrier, lost

from federatedscope_ggeur.federation import evaluate
from federatedscope_ggeur.federation.exchanges.evaluation.scores import ScoreReport
from federatedscope_ggeur.federation.exchanges.space import TotalsUpload
from federatedscope_ggeur.geometry import Space, Totals
from federatedscope_ggeur.methods import Local

WINDOWS = [[1, 2], [3, 4]]


def rows_of(carried, numbers=(1, 2, 3, 4)):
    return torch.cat([carried.federation.clients[k].features for k in numbers])


def assert_is_of(space, rows):
    wanted = Space.standard(Totals.of_rows(rows))
    torch.testing.assert_close(space.centre, wanted.centre)
    assert space.scale == pytest.approx(wanted.scale)


def replies(carried, *of):
    return [reply for *which, reply in carried.answers if which == [*of]]


def same(space, other):
    pairs = (space.centre, other.centre), (space.matrix, other.matrix)
    alike = [a is b or torch.equal(a, b) for a, b in pairs]
    return all(alike) and space.scale == other.scale


def test_without_statistics_clients_tell_of_all_their_rows():
    carried = carrier(steps=(), space="standard")
    record = carried.round0()
    assert carried.asked("statistics") == []
    assert carried.asked("totals") == [("totals", w) for w in WINDOWS]
    assert_is_of(carried.server.space, rows_of(carried))
    assert record.totals_bytes_up == carried.bytes_up("totals") > 0
    down = record.geometry_bytes_down + record.prototypes_bytes_down
    assert down + record.space_bytes_down == carried.bytes_down("prepare")


@pytest.mark.parametrize("space", ["standard", "whitened"])
def test_beside_statistics_they_tell_of_withheld_rows_alone(space):
    carried = carrier(space=space, min_samples=5)
    carried.round0()
    told = 0
    for kind, _, k, reply in carried.answers:
        if kind == "totals":
            schema = carried.server.schema
            told += TotalsUpload.from_bytes(
                reply[0], schema, f"client {k}"
            ).totals.count
    clients = carried.federation.clients.values()
    withheld = [int(c.counts[c.counts < 5].sum()) for c in clients]
    assert told == sum(n for n in withheld if n >= 5)
    assert told < sum(carried.federation.clients[k].features.shape[0] for k in (1, 2))


@pytest.mark.parametrize("steps", [(), (1, 2)])
def test_raw_asks_for_nothing_and_sends_nothing(steps):
    carried = carrier(steps=steps)
    record = carried.round0()
    assert carried.asked("totals") == []
    assert {
        parts[2]
        for r in carried.requests
        if r.kind.name == "prepare"
        for parts in r.parts.values()
    } == {b""}
    assert (record.totals_bytes_up, record.space_bytes_down) == (0, 0)


@pytest.mark.parametrize("space", ["standard", "whitened"])
@pytest.mark.parametrize("steps", [(), (1, 2)])
def test_a_client_that_comes_back_gets_the_space_again(space, steps):
    carried = carrier(steps=steps, space=space, quorum=3)
    carried.round0()
    carried.faults["train", 1, 2] = lost
    carried.rounds(1)
    carried.restart(2)
    carried.membership.lose(2, "connection lost")
    assert carried.federation.clients[2].space.is_raw
    carried.membership.come_back(2)
    start = len(carried.requests)
    record = carried.rounds(2)[0]
    assert record.clients == [1, 2, 3, 4]
    assert carried.asked("totals", start=start) == []  # none is taken twice
    assert same(carried.federation.clients[2].space, carried.server.space)


def test_one_that_was_not_there_for_it_gets_it_when_it_joins():
    carried = carrier(steps=(), space="standard", quorum=3)
    carried.faults["totals", 0, 2] = lost
    carried.round0()
    # It told nothing, and so the space is of the others' rows.
    assert_is_of(carried.server.space, rows_of(carried, (1, 3, 4)))
    carried.restart(2)
    carried.membership.come_back(2)
    carried.rounds(1)
    assert same(carried.federation.clients[2].space, carried.server.space)


def back_while_others_train(carried):
    """Client 2 in a new process, too late for the third round's training."""
    carried.faults["train", 3, 2] = lost

    def come_back():
        carried.restart(2)
        carried.membership.lose(2, "connection lost")
        carried.membership.come_back(2)

    carried.meanwhile["train", 3] = come_back


def test_who_only_scores_needs_no_space():
    carried = carrier(steps=(), space="standard", quorum=3)
    back_while_others_train(carried)
    carried.run(3)
    assert carried.federation.clients[2].space.is_raw
    server = carried.server
    assert not torch.equal(server.raw_params, server.params)
    (reply,) = replies(carried, "evaluate", 3, 2)
    rows = make_rows(15, seed=52)
    score = evaluate(server.model, server.raw_params, *rows, temperature=1.0)
    sent = ScoreReport.from_bytes(reply[0], server.schema, "client 2")
    assert sent.scores == {"test": score}
    assert sent.scores["test"].probabilities == score.probabilities


@pytest.mark.parametrize("steps", [(), (1,)])
def test_models_that_stay_with_clients_are_scored_by_those_that_have_their_space(steps):
    carried = carrier(Local(), steps=steps, space="standard", quorum=3)
    back_while_others_train(carried)
    carried.run(3)
    assert carried.asked("evaluate")[-1] == ("evaluate", [1, 3, 4])
    carried.rounds(4, 5, 6)
    assert carried.asked("evaluate")[-1] == ("evaluate", [1, 2, 3, 4])
