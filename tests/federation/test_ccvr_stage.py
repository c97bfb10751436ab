"""The stage that calibrates a head, from statistics that clients sent."""

import pytest
import torch
from by_bytes import CLASSES, DIM, SGD, make_client_data

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation import (
    CalibrationSettings,
    OptimizerSettings,
    TrainingSettings,
    evaluate,
)
from federatedscope_ggeur.federation.admission import Admission
from federatedscope_ggeur.federation.calibration import Calibration
from federatedscope_ggeur.federation.contract import contract_of
from federatedscope_ggeur.federation.messages import StatisticsUpload
from federatedscope_ggeur.federation.wire import EACH_CLASS
from federatedscope_ggeur.geometry import ClassStatistics
from federatedscope_ggeur.heads import HeadSettings, build_head, to_vector
from federatedscope_ggeur.methods import FedAvg

DATA = make_client_data((60, 50, 40))


def stage(head, training=SGD):
    roster = {k: domain for k, (domain, *_) in DATA.items()}
    admission = Admission(roster, FedAvg(), head)
    settings = CalibrationSettings(200, 20, training)
    contract = contract_of(head, FedAvg(), EACH_CLASS)
    return Calibration(head, settings, admission, contract, seed=0)


def uploads(head, params):
    found = []
    for k, (domain, x, y) in DATA.items():
        with torch.no_grad():
            inputs = head.at(params).last_input(x)
        statistics = ClassStatistics.from_embeddings(inputs, y, CLASSES)
        found.append(StatisticsUpload(k, domain, statistics))
    return found


@pytest.fixture(params=[0, 12], ids=["linear", "mlp"])
def head(request):
    made = build_head(DIM, CLASSES, HeadSettings(request.param))
    return made.reset(torch.Generator().manual_seed(1))


def accuracy(head, params):
    scores = [evaluate(head, params, x, y) for _, x, y in DATA.values()]
    return sum(s.correct for s in scores) / sum(s.total for s in scores)


def test_the_last_layer_learns_from_statistics_alone(head):
    params, calibration = to_vector(head), stage(head)
    calibration.add(uploads(head, params))
    after, details = calibration.run(params)
    assert accuracy(head, after) > accuracy(head, params) + 0.2
    assert details == {"draws_of_a_class": 200, "left_out": 0}


def test_windows_and_their_order_change_nothing(head):
    params = to_vector(head)
    at_once, one_by_one = stage(head), stage(head)
    sent = uploads(head, params)
    at_once.add(reversed(sent))
    for upload in sent:
        one_by_one.add([upload])
    assert torch.equal(at_once.run(params)[0], one_by_one.run(params)[0])


def test_a_bad_upload_takes_none_of_its_window(head):
    params, calibration = to_vector(head), stage(head)
    sent = uploads(head, params)
    stranger = StatisticsUpload(9, "elsewhere", sent[0].statistics)
    with pytest.raises(MessageError, match="not a client of this run"):
        calibration.add([*sent, stranger])
    with pytest.raises(GGEURError, match="nothing to calibrate"):
        calibration.run(params)


def test_divergence_is_named(head):
    wild = OptimizerSettings("SGD", 1e30, {"weight_decay": 1e9})
    calibration = stage(head, TrainingSettings(wild))
    params = to_vector(head)
    calibration.add(uploads(head, params))
    with pytest.raises(GGEURError, match=r"calibration diverged.*train\.optimizer\.lr"):
        calibration.run(params)
