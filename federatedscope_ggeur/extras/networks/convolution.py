"""Large convolutions whose gradients repeat exactly on a GPU and still are fast.

Of cuDNN's algorithms for gradients in float32, those that repeat their bits take up to
six times as long as the others where maps are large. A convolution of stride 1 does not
need them. The gradient in its input is a convolution, too: of the gradient in its
output with the mirrored weights. And where few numbers meet in one number of the
output, as in the first layer, the gradient in the weights is a matrix product.

Small convolutions stay cuDNN's. There its algorithms that repeat are as fast as the
others, and a GPU waits for Python.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

Padding = tuple[int, int]

#: A convolution is large if a batch has more places than this.
_PLACES = 1 << 14
#: So many numbers are few.
_FEW = 64


def use_repeating_convolutions(module: nn.Module) -> None:
    """Let the module's plain convolutions of stride 1 be `RepeatingConv2d`."""
    for layer in module.modules():
        if type(layer) is nn.Conv2d and _is_simple(layer):
            layer.__class__ = RepeatingConv2d


class RepeatingConv2d(nn.Conv2d):
    """A convolution that trains on a GPU by `convolve` where that is faster."""

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if x.is_cuda and torch.is_grad_enabled() and _is_slow(x):
            return convolve(x, weight, bias, self.padding)  # type: ignore[arg-type]
        return super()._conv_forward(x, weight, bias)


def _is_slow(x: Tensor) -> bool:
    """Whether cuDNN's algorithms that repeat are slow on such a batch."""
    is_reduced = torch.backends.cudnn.allow_tf32 or torch.is_autocast_enabled()
    return x.shape[0] * x.shape[2] * x.shape[3] > _PLACES and not is_reduced


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding
) -> Tensor:
    """`conv2d` of stride 1, with gradients by other convolutions and products.

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
        for_x, for_weight, for_bias, _ = ctx.needs_input_grad
        of_x = of_weight = of_bias = None
        if for_x:
            mirrored = weight.transpose(0, 1).flip(2, 3)
            reach = [k - 1 - p for k, p in zip(weight.shape[2:], ctx.padding)]
            of_x = F.conv2d(back, mirrored, padding=reach)
        if for_weight and weight[0].numel() <= _FEW:
            patches = F.unfold(x, weight.shape[2:], padding=ctx.padding)
            products = back.flatten(2) @ patches.transpose(1, 2)
            of_weight = products.sum(0).view_as(weight)
        elif for_weight:
            of_weight = conv2d_weight(x, weight.shape, back, padding=ctx.padding)
        if for_bias:
            of_bias = back.sum((0, 2, 3))
        return of_x, of_weight, of_bias, None


def _is_simple(layer: nn.Conv2d) -> bool:
    """Whether `convolve` does what the layer does."""
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        return False
    moves_by_one = layer.stride == layer.dilation == (1, 1) and layer.groups == 1
    return moves_by_one and all(p < k for p, k in zip(layer.padding, layer.kernel_size))
