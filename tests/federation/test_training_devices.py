"""Training and scoring on a device: the numbers of the CPU, which keeps all the rest.

Where there is no GPU, one that is not there stands in (elsewhere.py).

Tests of `machine.exact`, too.
"""

from dataclasses import replace

import pytest
import torch
from by_bytes import CLASSES, Federation, make_client_data, make_rows
from elsewhere import GPU, MixedDevices
from every_method import ADDED, FEDERATED
from federations import LOCAL, MODELS, OPTIMIZERS

from federatedscope_ggeur import load_config, run
from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.federation import (
    CalibrationSettings,
    TrainingSettings,
    evaluate,
    fit,
)
from federatedscope_ggeur.federation.exchanges.calibration import (
    CalibrationClient,
    CalibrationExchange,
)
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EvaluationClient,
)
from federatedscope_ggeur.machine import exact
from federatedscope_ggeur.methods import METHODS, build_method
from federatedscope_ggeur.models import CPU, build_model, to_vector

ALL = {
    **FEDERATED,
    "local": METHODS["local"](),
    **{f"fedavg + {name}": build_method("fedavg", name) for name in ADDED},
    "scaffold + fedgen": build_method("scaffold", "fedgen", {"steps": 3.0}),
}
#: A GPU draws sets of its own; what stands in for one draws those of the CPU.
STEPS = () if torch.cuda.is_available() else (1, 2)


def rounds(method, device, **options):
    """Weights after each of two rounds, client states, and what clients score."""
    training = replace(options.pop("training", LOCAL), device=device)
    federation = Federation(make_client_data(), method, training=training, **options)
    weights = federation.run(2)
    broadcast = federation.send(federation.broadcast(2))
    test = {"test": Embeddings(*make_rows(30, seed=9), "any")}
    sides = [EvaluationClient(c, test) for c in federation.clients.values()]
    reports = [side.score(broadcast, test) for side in sides]
    scores = [report.scores["test"].loss_sum for report in reports]
    states = [client.state for client in federation.clients.values()]
    return weights, states, scores


def assert_close(ours, theirs):
    if isinstance(ours, torch.Tensor):
        assert ours.device == CPU
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert_close(ours[name], theirs[name])
    elif isinstance(ours, list):
        for one, other in zip(ours, theirs):
            assert_close(one, other)
    else:
        assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_every_method_gives_what_it_gives_on_the_cpu(name, request):
    options = {"model": MODELS["mlp"], "steps": STEPS[:1]}
    here = rounds(ALL[name], CPU, **options)
    request.getfixturevalue("gpu")
    there = rounds(ALL[name], GPU, **options)
    for ours, theirs in zip(there, here):
        assert_close(ours, theirs)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("clip", [-1.0, 0.1])
@pytest.mark.parametrize("optimizer", ["momentum", "adam", "amsgrad"])
@pytest.mark.parametrize("model", MODELS)
def test_training_goes_as_on_the_cpu(model, optimizer, clip, shuffle, request):
    settings = TrainingSettings(
        OPTIMIZERS[optimizer], 2, "epoch", 8, shuffle=shuffle, grad_clip=clip
    )
    rows = make_rows(30, seed=1)

    def trained(device):
        head = build_model(rows[0].shape[1], CLASSES, MODELS[model])
        head.reset(torch.Generator().manual_seed(1))
        start, own = to_vector(head), replace(settings, device=device)
        return fit(head, start, *rows, own, seed=3).params

    here = trained(CPU)
    request.getfixturevalue("gpu")
    assert_close(trained(GPU), here)


@pytest.mark.slow
def test_sets_that_are_drawn_again_and_calibration(request):
    """No memory to keep a set in; the server trains the last layer on draws."""
    options = {"memory": 0, "noise": "fresh", "steps": STEPS, "model": MODELS["mlp"]}

    def calibrated(device):
        training = replace(LOCAL, device=device)
        federation = Federation(
            make_client_data(),
            training=training,
            calibration=CalibrationSettings(10, 2, training),
            **options,
        )
        weights = federation.run(2)
        broadcast = federation.broadcast(3)
        clients = federation.clients.values()
        calibrating = federation.find(CalibrationExchange).calibration
        calibrating.add(
            [CalibrationClient(client, {}).calibrate(broadcast) for client in clients]
        )
        return [weights, calibrating.run(federation.server.params)[0]]

    here = calibrated(CPU)
    request.getfixturevalue("gpu")
    assert_close(calibrated(GPU), here)


def test_rows_are_scored_as_on_the_cpu(request):
    model, rows = build_model(6, CLASSES, MODELS["mlp"]), make_rows(40, seed=2)
    here = evaluate(model, to_vector(model), *rows)
    request.getfixturevalue("gpu")
    there = evaluate(model, to_vector(model), *rows, GPU)
    assert (there.correct, there.total) == (here.correct, here.total)
    assert there.loss_sum == pytest.approx(here.loss_sum, rel=1e-4)


def test_the_stand_in_tells_devices_apart(gpu):
    """What torch refuses on a real GPU."""
    x = torch.ones(3)
    there = x.to(GPU)
    assert (x.device, there.device) == (CPU, GPU)
    generator = torch.Generator()
    for mixed in (
        lambda: x + there,
        lambda: x[there.long()],
        lambda: there.add_(x),
        lambda: there.uniform_(generator=generator),
    ):
        with pytest.raises((MixedDevices, RuntimeError)):
            mixed()
    assert (there[:2] * 2).device == GPU
    assert (there.cpu() + x).device == CPU


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_run_with_use_gpu_agrees_with_the_cpu(
    quickstart, method, request, monkeypatch
):
    own = {"ggeur.base_method": method, "ggeur.encoder.device": "cpu"}
    own["ggeur.steps"] = list(STEPS)
    own["data.splits"] = [0.5, 0.2, 0.3]  # a temperature is chosen on validation rows
    own["federate.total_round_num"] = 2
    here = run(load_config(quickstart, own))
    if request.getfixturevalue("gpu") is not None:
        for name, told in (
            ("is_available", True),
            ("device_count", 1),
            ("get_device_name", "a stand-in"),
            ("mem_get_info", (1, 1)),
            ("get_device_capability", (0, 0)),
        ):
            monkeypatch.setattr(f"torch.cuda.{name}", lambda *_, told=told: told)
    there = run(load_config(quickstart, {**own, "use_gpu": True}))
    assert there.final.avg == pytest.approx(here.final.avg, abs=1e-4)
    assert there.provenance.gpu is not None
    assert here.provenance.gpu is None


CUDNN = torch.backends.cudnn


@pytest.mark.skipif(not CUDNN.is_available(), reason="this torch has no cuDNN")
def test_flags_are_set_for_a_gpu_alone_and_put_back():
    before = CUDNN.deterministic, CUDNN.benchmark, CUDNN.allow_tf32
    with exact(torch.device("cuda")):
        assert CUDNN.deterministic
        assert not CUDNN.benchmark
        assert not CUDNN.allow_tf32
    assert (CUDNN.deterministic, CUDNN.benchmark, CUDNN.allow_tf32) == before
    with exact(torch.device("cuda"), tf32=True):
        assert CUDNN.deterministic
        assert CUDNN.allow_tf32
        assert torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    with exact(torch.device("cpu")):
        assert (CUDNN.deterministic, CUDNN.benchmark, CUDNN.allow_tf32) == before
