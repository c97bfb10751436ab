"""The stage that calibrates a head, from statistics that clients sent."""

import numpy as np
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
from federatedscope_ggeur.federation.calibration import Calibration
from federatedscope_ggeur.federation.messages import StatisticsUpload
from federatedscope_ggeur.federation.messages.schema import EACH_CLASS, MessageSchema
from federatedscope_ggeur.geometry import ClassStatistics
from federatedscope_ggeur.methods import FedAvg
from federatedscope_ggeur.models import (
    ModelSettings,
    build_model,
    draw_features,
    to_vector,
)

DATA = make_client_data((60, 50, 40))


def stage(model, training=SGD, epochs=20):
    settings = CalibrationSettings(200, epochs, training)
    schema = MessageSchema.of(model, FedAvg(), EACH_CLASS)
    return Calibration(model, settings, schema, seed=0)


def uploads(model, params):
    found = []
    for k, (domain, x, y) in DATA.items():
        with torch.no_grad():
            inputs = model.at(params).last_input(x)
        statistics = ClassStatistics.from_embeddings(inputs, y, CLASSES)
        found.append(StatisticsUpload(k, domain, statistics))
    return found


@pytest.fixture(params=[0, 12], ids=["linear", "mlp"])
def model(request):
    made = build_model(DIM, CLASSES, ModelSettings(request.param))
    return made.reset(torch.Generator().manual_seed(1))


def accuracy(model, params):
    scores = [evaluate(model, params, x, y) for _, x, y in DATA.values()]
    return sum(s.correct for s in scores) / sum(s.total for s in scores)


def test_the_last_layer_learns_from_statistics_alone(model):
    params, calibration = to_vector(model), stage(model)
    calibration.add(uploads(model, params))
    after, details = calibration.run(params)
    assert accuracy(model, after) > accuracy(model, params) + 0.2
    assert details == {"draws_of_a_class": 200, "left_out": 0}


def test_windows_and_their_order_change_nothing(model):
    params = to_vector(model)
    at_once, one_by_one = stage(model), stage(model)
    sent = uploads(model, params)
    at_once.add(reversed(sent))
    for upload in sent:
        one_by_one.add([upload])
    assert torch.equal(at_once.run(params)[0], one_by_one.run(params)[0])


def test_a_bad_upload_takes_none_of_its_window(model):
    params, calibration = to_vector(model), stage(model)
    sent = uploads(model, params)
    stranger = StatisticsUpload(9, "elsewhere", sent[0].statistics)
    with pytest.raises(MessageError, match="not a client of this run"):
        calibration.add([*sent, stranger])
    with pytest.raises(GGEURError, match="nothing to calibrate"):
        calibration.run(params)


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
    pooled = ClassStatistics.from_embeddings(inputs, labels, CLASSES)
    x, y = draw_features(pooled, 200, seed=0)
    x, y = x.numpy().astype(float), y.numpy()
    layer = model.at(params).classifier
    w, b = layer.weight.numpy().astype(float), layer.bias.numpy().astype(float)
    speed_w, speed_b = np.zeros_like(w), np.zeros_like(b)
    for _ in range(epochs):
        logits = x @ w.T + b
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(y)), y] -= 1
        speed_w = momentum * speed_w + p.T @ x / len(y) + decay * w
        speed_b = momentum * speed_b + p.mean(axis=0) + decay * b
        w, b = w - rate * speed_w, b - rate * speed_b
    trained = model.at(after)
    assert np.allclose(trained.classifier.weight.numpy(), w, atol=2e-5)
    assert np.allclose(trained.classifier.bias.numpy(), b, atol=2e-5)
    size = w.size + b.size
    assert torch.equal(after[:-size], params[:-size])
