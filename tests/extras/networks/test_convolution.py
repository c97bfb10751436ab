"""Convolutions by `convolve`: the gradients of `conv2d`, in other arithmetic."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from federatedscope_ggeur.extras.networks.convolution import (
    RepeatingConv2d,
    convolve,
    use_repeating_convolutions,
)

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def numbers(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@st.composite
def convolutions(draw):
    """Rows, weights, bias and padding of a convolution of stride 1."""
    high, wide = (draw(st.integers(1, 5)) for _ in range(2))
    padding = draw(st.integers(0, high - 1)), draw(st.integers(0, wide - 1))
    rows, outputs = (draw(st.integers(1, 3)) for _ in range(2))
    inputs = draw(st.sampled_from((1, 2, 3, 33)))  # of the last, many meet in an output
    sides = high + draw(st.integers(0, 3)), wide + draw(st.integers(0, 3))
    seed = draw(st.integers(0, 99))
    bias = numbers(outputs, seed=seed + 2) if draw(st.booleans()) else None
    x = numbers(rows, inputs, *sides, seed=seed)
    return x, numbers(outputs, inputs, high, wide, seed=seed + 1), bias, padding


@given(convolutions(), st.booleans())
@settings(max_examples=60)
def test_its_gradients_are_those_of_conv2d(case, of_pixels):
    x, weight, bias, padding = case
    wanted = [x] * of_pixels + [weight] + [bias] * (bias is not None)
    for tensor in wanted:
        tensor.requires_grad_()
    mine = convolve(x, weight, bias, padding)
    theirs = F.conv2d(x, weight, bias, padding=padding)
    assert torch.equal(mine, theirs)
    back = numbers(*mine.shape, seed=7)
    for own, other in zip(
        torch.autograd.grad(mine, wanted, back),
        torch.autograd.grad(theirs, wanted, back),
    ):
        assert torch.allclose(own, other, rtol=1e-10, atol=1e-12)


def test_its_gradients_have_gradients():
    x, weight, bias = numbers(2, 2, 5, 4, seed=0), numbers(3, 2, 3, 2, seed=1), None
    x.requires_grad_()
    weight.requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda x, weight: convolve(x, weight, bias, (1, 0)), (x, weight)
    )


@pytest.mark.parametrize(
    ("layer", "is_simple"),
    [
        (nn.Conv2d(4, 4, 3, padding=1), True),
        (nn.Conv2d(4, 4, 1), True),
        (nn.Conv2d(4, 4, 3, stride=2), False),
        (nn.Conv2d(4, 4, 3, dilation=2), False),
        (nn.Conv2d(4, 4, 3, groups=2), False),
        (nn.Conv2d(4, 4, 3, padding=3), False),
        (nn.Conv2d(4, 4, 3, padding="same"), False),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), False),
    ],
)
def test_layers_that_it_can_take_are_taken(layer, is_simple):
    module = nn.Sequential(layer)
    use_repeating_convolutions(module)
    assert isinstance(module[0], RepeatingConv2d) == is_simple


@needs_gpu
@pytest.mark.parametrize("side", [8, 80])
def test_a_gpu_trains_by_it_where_maps_are_large(side):
    module = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1)).cuda()
    use_repeating_convolutions(module)
    x = torch.randn(4, 3, side, side, device="cuda", requires_grad=True)
    with torch.backends.cudnn.flags(True, deterministic=True, allow_tf32=False):
        y = module(x)
    assert ("_Convolution" in type(y.grad_fn).__name__) == (side == 80)
