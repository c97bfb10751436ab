"""The stage that calibrates a head, from statistics that clients sent."""

import numpy as np
import pytest
import torch
from by_bytes import CLASSES, DIM, SGD, Federation, make_client_data
from by_numpy import log_softmax
from carrier import carrier, garbage, lost

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation import (
    CalibrationSettings,
    OptimizerSettings,
    TrainingSettings,
)
from federatedscope_ggeur.federation.exchanges.calibration import CALIBRATE, Calibration
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import (
    ModelSettings,
    build_model,
    draw_features,
    to_vector,
)

DATA = make_client_data((60, 50, 40))


def stage(model, training=SGD, epochs=20):
    settings = CalibrationSettings(200, epochs, training)
    return Calibration(model, settings, seed=0)


def uploads(model, params):
    found = []
    for k, (domain, x, y) in DATA.items():
        with torch.no_grad():
            inputs = model.at(params).last_input(x)
        statistics = Statistics.from_embeddings(inputs, y, CLASSES)
        found.append(StatisticsUpload(k, domain, statistics))
    return found


@pytest.fixture(params=[0, 12], ids=["linear", "mlp"])
def model(request):
    made = build_model(DIM, CLASSES, ModelSettings(request.param))
    return made.reset(torch.Generator().manual_seed(1))


def test_windows_and_their_order_change_nothing(model):
    params = to_vector(model)
    at_once, one_by_one = stage(model), stage(model)
    sent = uploads(model, params)
    at_once.add(reversed(sent))
    for upload in sent:
        one_by_one.add([upload])
    assert torch.equal(at_once.run(params)[0], one_by_one.run(params)[0])


@pytest.mark.parametrize("hidden", [0, 12], ids=["linear", "mlp"])
def test_uploads_that_cannot_be_are_refused(hidden):
    settings = CalibrationSettings(200, 20, SGD)
    model = ModelSettings(hidden)
    federation = Federation(DATA, model=model, calibration=settings)
    server = federation.server
    first, *_, last = uploads(server.model, server.params)
    stranger = StatisticsUpload(9, "elsewhere", first.statistics)
    moved = StatisticsUpload(last.client, first.domain, last.statistics)
    empty = Statistics.empty(CLASSES, DIM + 1)
    narrow = StatisticsUpload(last.client, last.domain, empty)
    for upload, problem in (
        (stranger, "client 9 .*not a client of this run"),
        (moved, "client 3 .*the client joined with 'domain 3'"),
        (narrow, "client 3 .*'means'"),
    ):
        with pytest.raises(MessageError, match=problem):
            federation.validated(CALIBRATE, upload, 11)
    received = federation.validated(CALIBRATE, first, 11)
    assert received.statistics.classes == first.statistics.classes


def test_without_statistics_the_error_says_what_to_do(model):
    with pytest.raises(GGEURError, match="cannot be calibrated"):
        stage(model).run(to_vector(model))


@pytest.mark.parametrize("fault", [garbage, lost])
def test_a_bad_upload_leaves_those_of_the_others(fault):
    options = {"calibration": CalibrationSettings(50, 3, SGD), "steps": ()}
    carried = carrier(quorum=3, sizes=(40, 30, 35, 25), **options)
    carried.run(1)
    params = carried.server.params
    carried.faults["calibrate", 11, 2] = fault
    record = carried.carry(carried.coordinator.after_rounds())
    assert record.method == "ccvr"
    assert list(carried.membership.absent) == [2]
    others = Calibration(carried.server.model, options["calibration"], seed=0)
    others.add(
        StatisticsUpload.from_bytes(
            reply[0],
            carried.server.task.calibration_schema(carried.server.model),
            f"client {k}",
        )
        for kind, _, k, reply in carried.answers
        if kind == "calibrate" and k != 2
    )
    assert torch.equal(carried.server.params, others.run(params)[0])


def test_divergence_is_named(model):
    wild = OptimizerSettings("SGD", 1e30, {"weight_decay": 1e9})
    calibration = stage(model, TrainingSettings(wild))
    params = to_vector(model)
    calibration.add(uploads(model, params))
    with pytest.raises(GGEURError, match=r"calibration diverged.*train\.optimizer\.lr"):
        calibration.run(params)


def test_golden_numbers_by_numpy(model):
    """Full batches of the draws, so that their order does not matter; in numpy:

    the clients' statistics merge to those of all rows, the last layer (W, b) goes down
    the gradient of the mean cross-entropy with momentum and weight decay, and all
    layers before it stay.
    """
    rate, momentum, decay, epochs = 0.5, 0.9, 0.01, 7
    options = {"momentum": momentum, "weight_decay": decay}
    training = TrainingSettings(OptimizerSettings("SGD", rate, options), batch_size=999)
    params = to_vector(model)
    calibration = stage(model, training, epochs)
    calibration.add(uploads(model, params))
    after, _ = calibration.run(params)

    rows = torch.cat([x for _, x, _ in DATA.values()])
    labels = torch.cat([y for *_, y in DATA.values()])
    with torch.no_grad():
        inputs = model.at(params).last_input(rows)
    pooled = Statistics.from_embeddings(inputs, labels, CLASSES)
    x, y = draw_features(pooled, 200, seed=0)
    x, y = x.numpy().astype(float), y.numpy()
    layer = model.at(params).classifier
    w, b = layer.weight.numpy().astype(float), layer.bias.numpy().astype(float)
    speed_w, speed_b = np.zeros_like(w), np.zeros_like(b)
    for _ in range(epochs):
        p = np.exp(log_softmax(x @ w.T + b))
        p[np.arange(len(y)), y] -= 1
        speed_w = momentum * speed_w + p.T @ x / len(y) + decay * w
        speed_b = momentum * speed_b + p.mean(axis=0) + decay * b
        w, b = w - rate * speed_w, b - rate * speed_b
    trained = model.at(after)
    assert np.allclose(trained.classifier.weight.numpy(), w, atol=2e-5)
    assert np.allclose(trained.classifier.bias.numpy(), b, atol=2e-5)
    size = w.size + b.size
    assert torch.equal(after[:-size], params[:-size])


# Calibration after the last round (CCVR), by whole runs.


CCVR = ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 50]


def follow(cfg):
    """The results, and the server's model before and after calibration."""
    going, weights = Run(cfg), []
    results = going.follow(
        lambda record: weights.append(going.engine.server.params.clone())
    )
    model = going.engine.server.model
    return results, *(model.at(params) for params in weights[-2:])


def test_a_linear_head_reuses_the_statistics_of_round_0(config):
    asked = run(config("ggeur.steps", [], *CCVR))
    reused = run(config("ggeur.steps", [1, 2], *CCVR))
    by_server = ["federate.make_global_eval", True]
    assert reused.calibrated.bytes_up < asked.calibrated.bytes_up
    silent = run(config("ggeur.steps", [1, 2], *by_server, *CCVR))
    assert silent.calibrated.bytes_up == 0


def test_without_any_statistics_the_trained_head_is_left(config):
    settings = [*CCVR, "ggeur.steps", [], "ggeur.privacy.min_samples", 10000]
    following = Run(config(*settings))
    with pytest.raises(GGEURError, match=r"lower ggeur\.privacy\.min_samples"):
        following.follow(lambda record: None)
    assert len(following.history.rounds) == 3
    assert following.history.results("failed").final.head == "trained"


def test_a_class_withheld_by_all_keeps_its_weights(config):
    settings = [*CCVR, "data.splitter_args", [{"alpha": 0.1}]]
    results, *models = follow(config(*settings, "ggeur.privacy.min_samples", 5))
    left_out = results.calibrated.details["left_out"]
    before, after = (model.classifier.weight for model in models)
    same = (before == after).all(dim=1)
    assert 0 < left_out < len(same)
    assert int(same.sum()) == left_out
    assert results.final.head == "calibrated"
    assert results.final.accuracy == results.calibrated.accuracy
