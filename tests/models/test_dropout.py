"""Dropout draws what torch's own draws."""

import pytest
import torch
from torch import nn

from federatedscope_ggeur.models.heads import Dropout


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_it_draws_as_torch_does(device):
    x = torch.ones(50, 7)
    torch.manual_seed(3)
    wanted = nn.Dropout(0.4)(x)
    after = torch.rand(1)
    torch.manual_seed(3)
    found = Dropout(0.4)(x.to(device))
    assert torch.equal(torch.rand(1), after)
    assert found.shape == wanted.shape
    if device == "cpu":
        assert torch.equal(found, wanted)


def test_it_does_nothing_in_evaluation():
    x = torch.ones(4, 3)
    assert torch.equal(Dropout(0.9).eval()(x), x)
