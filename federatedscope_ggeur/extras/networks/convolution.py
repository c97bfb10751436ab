"""Convolutions whose gradients repeat exactly on a GPU and still are fast.

Of cuDNN's algorithms for the gradient in a convolution's input, those that repeat their
bits take up to six times as long as the others. A convolution of stride 1 does not need
them. That gradient is a convolution, too: of the gradient in the output with the
mirrored weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Padding = tuple[int, int]


def use_repeating_convolutions(module: nn.Module) -> None:
    """Let the module's plain convolutions of stride 1 be `RepeatingConv2d`."""
    for layer in module.modules():
        if type(layer) is nn.Conv2d and _is_simple(layer):
            layer.__class__ = RepeatingConv2d


class RepeatingConv2d(nn.Conv2d):
    """A convolution that trains on a GPU by `convolve`."""

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        trains = torch.is_grad_enabled() and not torch.is_autocast_enabled()
        if not x.is_cuda or not trains:
            return super()._conv_forward(x, weight, bias)
        return convolve(x, weight, bias, self.padding)  # type: ignore[arg-type]


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding
) -> Tensor:
    """`conv2d` of stride 1 whose gradient in `x` is computed by a convolution.

    Parameters
    ----------
    x : Tensor of shape (B, I, H, W)
    weight : Tensor of shape (O, I, h, w)
    bias : Tensor of shape (O,), optional
    padding : (int, int)
        Below (h, w).
    """
    return _Convolution.apply(x, weight, bias, padding)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, padding):
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        return F.conv2d(x, weight, bias, padding=padding)

    @staticmethod
    def backward(ctx, back):
        x, weight = ctx.saved_tensors
        for_x, *others = ctx.needs_input_grad[:3]
        of_x = of_weight = of_bias = None
        if for_x:
            mirrored = weight.transpose(0, 1).flip(2, 3)
            high, wide = weight.shape[2:]
            down, across = ctx.padding
            of_x = F.conv2d(
                back, mirrored, padding=(high - 1 - down, wide - 1 - across)
            )
        if any(others):
            _, of_weight, of_bias = torch.ops.aten.convolution_backward(
                back,
                x,
                weight,
                weight.shape[:1],
                (1, 1),
                ctx.padding,
                (1, 1),
                False,
                (0, 0),
                1,
                (False, *others),
            )
        return of_x, of_weight, of_bias, None


def _is_simple(layer: nn.Conv2d) -> bool:
    """Whether `convolve` does what the layer does."""
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        return False
    moves_by_one = layer.stride == layer.dilation == (1, 1) and layer.groups == 1
    return moves_by_one and all(p < k for p, k in zip(layer.padding, layer.kernel_size))
