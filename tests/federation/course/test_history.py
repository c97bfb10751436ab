"""What a history keeps of a run: records, results, the model they are of."""

import json

import pytest
import torch
from by_bytes import SGD
from carrier import carrier
from safetensors.torch import load

from federatedscope_ggeur.federation import CalibrationSettings
from federatedscope_ggeur.federation.course.history import History
from federatedscope_ggeur.methods import METHODS
from federatedscope_ggeur.reporting import Results

CALIBRATION = CalibrationSettings(20, 2, SGD)


class Writer:
    """Counts the rounds that were over whenever a checkpoint was due."""

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


def test_records_go_where_they_belong_and_into_the_results(carried):
    history = History(carried.coordinator, begun())
    assert history.last_scored is None
    round0, rounds = carried.run(2)
    for record in (round0, *rounds):
        history.note(record)
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
    round0, rounds = carried.run(1)
    history.note(round0)
    history.note(rounds[0])
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
    round0, rounds = carried.run(1)
    history.note(round0)
    history.note(rounds[0])
    assert history.head_bytes() is None
    assert history.results().model is None


def test_checkpoints_are_of_all_but_the_calibrated_head(carried):
    writer = Writer()
    history = History(carried.coordinator, begun(), writer)
    round0, rounds = carried.run(2)
    for record in (round0, *rounds):
        history.note(record)
    history.note(carried.carry(carried.coordinator.after_rounds()))
    assert writer.written == [0, 1, 2]
