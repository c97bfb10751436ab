"""A module's numbers as one vector: trainable ones, then running statistics."""

import pytest
import torch
from torch import nn

from federatedscope_ggeur.models import (
    LinearHead,
    MLPHead,
    bind_vector,
    load_vector,
    named_tensors,
    negative_variance,
    num_buffers,
    num_parameters,
    num_trainable,
    split_vector,
    to_vector,
    trainable_part,
)
from federatedscope_ggeur.models.vectors import norm_mask


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.LazyLinear(3)
    )


def built(net):
    net(torch.randn(4, 1, 4, 4))
    return net


def test_parameters_come_first_and_running_statistics_behind(net):
    net = built(net)
    state = net.state_dict()
    wanted = [p.detach().flatten() for p in net.parameters()]
    wanted += [state["1.running_mean"], state["1.running_var"]]
    assert torch.equal(to_vector(net), torch.cat(wanted))
    assert num_trainable(net) == sum(p.numel() for p in net.parameters())
    assert num_buffers(net) == 4
    assert num_parameters(net) == num_trainable(net) + 4


def test_heads_keep_none():
    for head in (LinearHead(3, 2), MLPHead(3, 2, 4)):
        assert num_buffers(head) == 0
        assert num_parameters(head) == num_trainable(head) == len(to_vector(head))
        assert not norm_mask(head).any()


def test_a_bound_vector_follows_training(net):
    """Five steps with momentum on the vector are torch's own, statistics included."""
    net = built(net)
    vector = to_vector(net)
    twin = built(nn.Sequential(*map(type_again, net)))
    twin.load_state_dict(net.state_dict())
    bind_vector(net, vector)
    params = trainable_part(net, vector)
    theirs = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    momentum = torch.zeros_like(params)
    for _ in range(5):
        x, y = torch.randn(6, 1, 4, 4), torch.randint(3, (6,))
        loss = nn.functional.cross_entropy(net(x), y)
        gradient = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            momentum.mul_(0.9).add_(torch.cat([g.flatten() for g in gradient]))
            params.sub_(0.1 * momentum)
        theirs.zero_grad()
        nn.functional.cross_entropy(twin(x), y).backward()
        theirs.step()
        torch.testing.assert_close(vector, to_vector(twin), rtol=0, atol=1e-6)


def type_again(layer):
    if isinstance(layer, nn.Conv2d):
        return nn.Conv2d(1, 2, 3)
    if isinstance(layer, nn.BatchNorm2d):
        return nn.BatchNorm2d(2)
    return nn.Flatten() if isinstance(layer, nn.Flatten) else nn.Linear(8, 3)


def test_loading_without_statistics_leaves_them(net):
    net = built(net)
    before = to_vector(net)
    load_vector(net, torch.zeros(num_trainable(net)))
    after = to_vector(net)
    assert not trainable_part(net, after).any()
    assert torch.equal(after[-4:], before[-4:])
    load_vector(net, before)
    assert torch.equal(to_vector(net), before)


def test_names_are_those_of_the_state_dict(net):
    net = built(net)
    vector = torch.arange(float(num_parameters(net)))
    named = named_tensors(net, vector)
    assert set(net.state_dict()) - set(named) == {"1.num_batches_tracked"}
    plain = built(nn.Sequential(*map(type_again, net)))
    plain.load_state_dict(named, strict=False)
    assert torch.equal(to_vector(plain), vector)
    assert set(named_tensors(net, trainable_part(net, vector))) == {
        name for name, _ in net.named_parameters()
    }


def test_parts_are_views(net):
    net = built(net)
    vector = torch.zeros(num_parameters(net))
    split_vector(net, vector)[-1].fill_(1)
    assert vector.sum() == 2


def test_the_mask_holds_what_norm_layers_hold(net):
    net = built(net)
    named = named_tensors(net, norm_mask(net))
    assert {name for name, mask in named.items() if mask.all()} == {
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
    }
    assert norm_mask(net).sum() == 8


def test_a_negative_variance_is_named(net):
    net = built(net)
    vector = to_vector(net)
    assert negative_variance(net, vector) == ""
    vector[-1] = -1e-3
    assert negative_variance(net, vector) == "1.running_var"
    assert negative_variance(LinearHead(3, 2), -torch.ones(8)) == ""
