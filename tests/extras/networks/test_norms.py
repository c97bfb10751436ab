"""What stands where a network has BatchNorm."""

import pytest
import torch
from test_networks_table import network, pixels
from torch import nn

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.networks.base import put_norms
from federatedscope_ggeur.models import num_buffers


@pytest.mark.parametrize("name", ["digits_cnn", "convnet5", "resnet18"])
@pytest.mark.parametrize("norm", ["layer", "group", "none"])
def test_other_norms_keep_no_running_statistics(name, norm):
    model = network(name, norm=norm)
    assert num_buffers(network(name)) > 0
    assert num_buffers(model) == 0
    assert not model.norm_modules
    found = [m for m in model.modules() if isinstance(m, nn.GroupNorm)]
    assert bool(found) == (norm != "none")
    for layer in found:
        assert layer.num_groups == (1 if norm == "layer" else 32) or norm == "group"
        assert layer.num_channels % layer.num_groups == 0
    if norm == "group" and name == "resnet18":
        assert {layer.num_groups for layer in found} == {32}
    assert model.in_chunks(model, pixels(model)).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simple_cnn", "timm:swin_tiny_patch4_window7_224"])
def test_norms_that_cannot_be_put(name):
    with pytest.raises(ConfigError, match=r"norm: .*leave the key at batch"):
        network(name, norm="group")
    network(name, norm="none")


def test_layers_of_one_row_do_not_see_the_others():
    module = nn.Sequential(nn.BatchNorm2d(6))
    put_norms(module, "group", "a test")
    assert module[0].num_groups == 6
    x = torch.randn(4, 6, 3, 3)
    torch.testing.assert_close(module(x)[:1], module(x[:1]))
