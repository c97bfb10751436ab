"""Class means of the representation: of which rows, and what cannot be one."""

import pytest
import torch
from pictures_federation import NETWORKS, image_data

from federatedscope_ggeur.methods.class_means import (
    class_means,
    class_means_problem,
    class_means_specs,
)
from federatedscope_ggeur.models import ModelSettings, build_model

MODELS = {"head": (6, ModelSettings(hidden=5)), "network": (64, NETWORKS["batch"])}


def rows_for(dim):
    if dim == 64:
        _, rows, labels = image_data((70,))[1]
        return rows, labels % 3
    rows = torch.randn(70, dim, generator=torch.Generator().manual_seed(0))
    return rows, torch.arange(70) % 3


@pytest.mark.parametrize("kind", MODELS)
def test_they_are_of_all_rows_of_a_class_in_evaluation_mode(kind):
    dim, settings = MODELS[kind]
    model = build_model(dim, 4, settings)
    rows, labels = rows_for(dim)
    found = class_means(model, rows, labels, torch.tensor([True, False, True, True]))
    specs = class_means_specs(model)
    assert {n: (t.shape, t.dtype) for n, t in found.items()} == {
        name: (torch.Size(spec.shape), spec.dtype) for name, spec in specs.items()
    }
    assert found["known"].tolist() == [1, 0, 1, 0]  # nobody has class 3
    model.eval()
    z = model.represent(model.prepare(rows))
    for c in (0, 2):
        torch.testing.assert_close(found["means"][c], z[labels == c].mean(dim=0))
    assert not found["means"][[1, 3]].any()
    assert class_means_problem(found) == ""


def test_without_rows_nothing_is_known():
    dim, settings = MODELS["network"]
    rows, labels = rows_for(dim)
    model = build_model(dim, 4, settings)
    found = class_means(model, rows[:0], labels[:0], torch.ones(4, dtype=torch.bool))
    assert not found["known"].any()
    assert not found["means"].any()
