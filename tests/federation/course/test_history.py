"""What a history keeps of a run: records, results, the model they are of."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from by_bytes import SGD, make_rows
from carrier import after_round_0, carrier, lost
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import CalibrationSettings, evaluate, wire
from federatedscope_ggeur.federation.course.coordinator import Ending
from federatedscope_ggeur.federation.course.history import History
from federatedscope_ggeur.federation.exchanges.evaluation.scores import ScoreReport
from federatedscope_ggeur.geometry import Space, Totals
from federatedscope_ggeur.methods import METHODS, Local
from federatedscope_ggeur.reporting import ClientInfo, Results

CALIBRATION = CalibrationSettings(20, 2, SGD)


class Writer:
    """Counts the rounds that were over whenever a checkpoint was due."""

    claimed = nullcontext

    def __init__(self):
        self.written = []

    def note(self, coordinator, round0, rounds):
        self.written.append(len(rounds))


def begun():
    return Results.begun(
        engine="a test", config={}, seed=0, domains=[], unseen_domains=[],
        class_names=["a", "b", "c", "d"], encoder="none", clients=[],
    )  # fmt: skip


@pytest.fixture
def carried():
    return carrier(calibration=CALIBRATION)


def follow(carried, history, rounds):
    """The records of round 0 and of so many rounds, which the history has noted."""
    round0, later = carried.run(rounds)
    for record in (round0, *later):
        history.note(record)
    return round0, later


def test_records_go_where_they_belong_and_into_the_results(carried):
    history = History(carried.coordinator, begun())
    assert history.last_scored is None
    round0, rounds = follow(carried, history, 2)
    assert history.last_scored is rounds[-1]
    calibrated = carried.carry(carried.coordinator.after_rounds())
    history.note(calibrated)
    assert history.last_scored is calibrated
    results = history.results()
    assert (results.round0, results.rounds) == (round0, rounds)
    assert results.calibrated is calibrated
    assert results.final.head == "calibrated"
    assert results.status == "finished"
    assert Results.from_json(results.to_json()) == results


def test_domains_that_the_server_scores_are_those_of_a_restored_run(carried):
    coordinator = carried.coordinator
    coordinator.plan = replace(coordinator.plan, server_evaluates=True)
    joined = [ClientInfo(k, f"as {k} joined", None, None) for k in (1, 2)]
    known = replace(begun(), domains=["second", "first"], clients=joined)
    results = History(coordinator, known).results()
    assert results.domains == ["second", "first"]
    now = coordinator.server.client_domains
    assert [info.domain for info in results.clients] == [now[1], now[2]]


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_an_unfinished_run_has_results_too(carried, status):
    history = History(carried.coordinator, begun())
    assert history.results(status).round0 is None
    history.note(carried.round0())
    results = history.results(status)
    assert (results.status, results.rounds) == (status, [])


def test_the_model_is_of_the_last_record(carried):
    """A round that was cut off has no part in it."""
    history = History(carried.coordinator, begun())
    follow(carried, history, 1)
    server, noted = carried.server, carried.server.params.clone()
    carried.rounds(2)
    assert not torch.equal(server.params, noted)
    model = server.model.at(noted).state_dict()
    kept = history.results().model.state_dict()
    tensors = load(history.head_bytes())
    assert model.keys() == kept.keys() == tensors.keys()
    assert all(torch.equal(kept[name], model[name]) for name in model)
    assert all(torch.equal(tensors[name], model[name]) for name in model)


def test_the_head_s_header_is_in_a_fixed_order_and_padded_as_the_format_wants(carried):
    """Where safetensors' own writer orders by chance, two processes may agree."""
    data = History(carried.coordinator, begun()).head_bytes()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].decode()
    assert length % 8 == 0
    names = list(json.loads(header))
    assert names[0] == "__metadata__"
    assert names[1:] == sorted(names[1:])
    about = json.loads(header)["__metadata__"]
    assert list(about) == ["class_names", "encoder"]
    assert json.loads(about["class_names"]) == ["a", "b", "c", "d"]
    assert about["encoder"] == "none"


@pytest.mark.parametrize(
    "method", [name for name, part in METHODS.items() if not part.federated]
)
def test_there_is_no_model_where_every_client_has_its_own(method):
    carried = carrier(METHODS[method]())
    history = History(carried.coordinator, begun())
    follow(carried, history, 1)
    assert history.head_bytes() is None
    assert history.results().model is None


def test_checkpoints_are_of_all_but_the_calibrated_head(carried):
    writer = Writer()
    history = History(carried.coordinator, begun(), writer)
    follow(carried, history, 2)
    history.note(carried.carry(carried.coordinator.after_rounds()))
    assert writer.written == [0, 1, 2]


# What the server says at the end: it arrives as it was, or is refused.


NAMES = st.sampled_from(["art", "", "a b", "\u00e9\n", "\U0001f40e"])
SHARES = st.dictionaries(NAMES, st.floats(0, 1), max_size=5)


@examples(25)
@given(
    head=st.sampled_from(["trained", "calibrated", "closed_form"]),
    by=st.sampled_from([None, "leave_one_out", "validation", "start"]),
    accuracy=st.none() | SHARES,
)
def test_it_arrives_as_it_was(head, by, accuracy):
    sent = Ending(head, by, accuracy)
    assert Ending.from_bytes(sent.to_bytes()) == sent


def message(accuracy=(0.5,), **changes) -> bytes:
    numbers = {"head": "trained", "calibrated_by": "", "domains": ["art"], **changes}
    shares = torch.tensor(accuracy, dtype=torch.float64)
    return wire.pack("ending", numbers, {"accuracy": shares})


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (message([1.5]), "accuracy"),
        (message([0.5, 0.5]), "accuracy"),
        (message(domains="art"), "domains"),
    ],
)
def test_what_cannot_be_is_refused_by_field(data, field):
    with pytest.raises(MessageError) as error:
        Ending.from_bytes(data)
    assert error.value.field == field


# The space in the course of a federation: who is told, and when clients fail.


WINDOWS = [[1, 2], [3, 4]]


def rows_of(carried, numbers=(1, 2, 3, 4)):
    return torch.cat([carried.federation.clients[k].features for k in numbers])


def assert_is_of(space, rows):
    wanted = Space.standard(Totals.of_rows(rows))
    torch.testing.assert_close(space.centre, wanted.centre)
    assert space.scale == pytest.approx(wanted.scale)


def same(space, other):
    pairs = (space.centre, other.centre), (space.scales, other.scales)
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


@pytest.mark.parametrize("steps", [(), (1, 2)])
def test_a_client_that_comes_back_gets_the_space_again(steps):
    carried = after_round_0(steps=steps, space="standard", quorum=3)
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


def test_who_missed_the_statistics_tells_no_totals():
    carried = carrier(space="standard", quorum=3)
    carried.faults["statistics", 0, 2] = lost
    carried.meanwhile["statistics", 0] = lambda: carried.membership.come_back(2)
    carried.round0()
    assert carried.asked("totals") == [("totals", [1]), ("totals", [3, 4])]


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
    asked = ["evaluate", 3, 2]
    (reply,) = (reply for *which, reply in carried.answers if which == asked)
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
