"""Class means of the representation: of which rows, and what cannot be one."""

import torch

from federatedscope_ggeur.methods.class_means import (
    class_means,
    class_means_problem,
    class_means_specs,
)
from federatedscope_ggeur.models import ModelSettings, build_model

MODEL = build_model(6, 4, ModelSettings(hidden=5, dropout=0.5))
ROWS = torch.randn(70, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(70) % 3


def test_they_are_of_all_rows_of_a_class_in_evaluation_mode():
    model, rows, labels = MODEL.train(), ROWS, LABELS
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
    everything = torch.ones(4, dtype=torch.bool)
    found = class_means(MODEL, ROWS[:0], LABELS[:0], everything)
    assert not found["known"].any()
    assert not found["means"].any()
