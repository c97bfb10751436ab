"""Training and scoring of networks on a device: the numbers of the CPU.

Where there is no GPU, one that is not there stands in (elsewhere.py).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from elsewhere import GPU
from tiny_networks import RATE, federation, images, make_model

from federatedscope_ggeur.federation import TrainingSettings, evaluate, fit
from federatedscope_ggeur.methods import METHODS, build_method
from federatedscope_ggeur.models import CPU, to_vector


def test_rows_are_scored_as_on_the_cpu(request):
    model, rows = make_model(), images(150)
    here = evaluate(model, to_vector(model), *rows)
    request.getfixturevalue("gpu")
    there = evaluate(model, to_vector(model), *rows, GPU)
    assert (there.correct, there.total) == (here.correct, here.total)
    assert there.loss_sum == pytest.approx(here.loss_sum, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "augment"),
    [
        *(("fedavg", a) for a in ("crop_flip", "flip_rotate", "resized_crop")),
        *((n, "none") for n in ("moon", "fedntd", "fedproto", "fedbn", "silobn")),
    ],
)
def test_rounds_of_networks_are_those_of_the_cpu(request, name, augment):
    def after(device):
        training = TrainingSettings(RATE, 1, "epoch", 7, device=device)
        run = federation(METHODS[name](), augment=augment, training=training)
        found = run.run(2)[-1]
        assert all(
            t.device == CPU
            for client in run.clients.values()
            for state in client.states.values()
            for t in state.values()
        )
        return found

    here = after(CPU)
    request.getfixturevalue("gpu")
    torch.testing.assert_close(after(GPU), here, rtol=0, atol=1e-5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the stand-in counts waits")
@pytest.mark.parametrize(
    ("name", "augment", "settings"),
    [
        ("", "none", {}),
        *(
            pytest.param("", a, {}, marks=pytest.mark.slow)
            for a in ("crop_flip", "flip_rotate", "resized_crop")
        ),
        *(
            pytest.param(name, "none", settings, marks=pytest.mark.slow)
            for name, settings in (
                ("fedfa_plus", {"probability": 1.0}),
                ("mixstyle", {"probability": 1.0}),
                ("fedpg", {"source": "noise", "images_per_class": 8}),
            )
        ),
    ],
)
def test_nothing_waits_for_a_gpu_within_an_epoch(gpu, name, augment, settings):
    """More mini-batches need no more copies that wait, and read no numbers."""

    def waits(batches):
        training = TrainingSettings(RATE, batches, "batch", 4, device=GPU)
        method = build_method("fedavg", name or "none", settings)
        run = federation(method, augment=augment, training=training)
        run.run(1)  # some methods begin with what the first round has made
        before = len(gpu.waits)
        run.run(1)
        return len(gpu.waits) - before

    assert waits(2) == waits(1)


@pytest.mark.slow
@pytest.mark.parametrize("free", [1, 10**9])
def test_images_that_do_not_fit_stay_in_main_memory(free, gpu, monkeypatch, caplog):
    """The run says so, and the weights are the same."""
    monkeypatch.setattr(f"{fit.__module__}.free_memory", lambda device: free)
    training = TrainingSettings(RATE, 2, "epoch", 7, device=GPU)
    run = federation(METHODS["fedproto"](), augment="crop_flip", training=training)
    found = run.run(1)[-1]
    kept = [client.kept_set for client in run.clients.values()]
    assert {s.features.device for s in kept} == {CPU if free == 1 else GPU}
    assert ("stay in main memory" in caplog.text) == (free == 1)
    here = replace(training, device=CPU)
    other = federation(METHODS["fedproto"](), augment="crop_flip", training=here)
    torch.testing.assert_close(found, other.run(1)[-1], rtol=0, atol=1e-5)
