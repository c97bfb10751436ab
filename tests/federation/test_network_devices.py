"""Networks on a GPU, or on what stands in for one: the CPU's numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from elsewhere import GPU, Elsewhere
from tiny_networks import RATE, federation, images, make_model

from federatedscope_ggeur.federation import TrainingSettings, evaluate
from federatedscope_ggeur.methods import METHODS
from federatedscope_ggeur.models import to_vector

TRAINING = TrainingSettings(RATE, 1, "epoch", 7)


@pytest.fixture
def gpu():
    if torch.cuda.is_available():
        yield None
    elif not hasattr(torch.Tensor, "untyped_storage"):
        pytest.skip("the stand-in for a GPU needs torch 2")
    else:
        with Elsewhere() as mode:
            yield mode


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "augment"),
    [
        ("fedavg", "crop_flip"),
        ("fedavg", "flip_rotate"),
        ("fedavg", "resized_crop"),
        *((n, "none") for n in ("moon", "fedntd", "fedproto", "fedbn", "silobn")),
    ],
)
def test_rounds_are_those_of_the_cpu(request, name, augment):
    def after():
        run = federation(METHODS[name](), augment=augment, training=training)
        found = run.run(2)[-1]
        assert all(
            t.device.type == "cpu"
            for client in run.clients.values()
            for state in client.states.values()
            for t in state.values()
        )
        return found

    training = TRAINING
    here = after()
    request.getfixturevalue("gpu")
    training = replace(TRAINING, device=GPU)
    torch.testing.assert_close(after(), here, rtol=0, atol=1e-5)


def test_scores_are_those_of_the_cpu(request):
    model, rows = make_model(), images(150)
    here = evaluate(model, to_vector(model), *rows)
    request.getfixturevalue("gpu")
    there = evaluate(model, to_vector(model), *rows, GPU)
    assert (there.correct, there.total) == (here.correct, here.total)
    assert there.loss_sum == pytest.approx(here.loss_sum, rel=1e-4)
