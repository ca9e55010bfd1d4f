"""Causal depthwise convolution inside documents, with its gradients written out.

Written as shifts of all B * T tokens: a shift never reaches over the start of a document, and every
row starts one. So each pass is one kernel that reads neighbouring tokens.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from recipes.tiny.fused import fused


def short_convolution(x: Tensor, taps: Tensor, offsets: Tensor) -> Tensor:
    """Causal depthwise convolution of x [B, T, C] by taps [C, W], then SiLU; last tap is newest.

    `offsets` [B, T] count from the start of each document, which the taps do not reach behind.
    """
    out: Tensor = _Convolution.apply(x.flatten(0, 1), taps, offsets.flatten())
    return out.view_as(x)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(x, taps, offsets)
        return _convolved(x, taps, offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, taps, offsets = ctx.saved_tensors
        slope = _slope(x, taps, offsets, grads[0])
        return _spread(slope, taps, offsets, x.dtype), _taps(slope, taps, x, offsets), None


def _mixed(x: Tensor, taps: Tensor, offsets: Tensor) -> Tensor:
    wide, width = x.float(), taps.shape[1]
    mixed = wide * taps[:, -1]
    for back in range(1, width):
        inside = (offsets >= back).unsqueeze(-1)
        mixed = mixed + torch.where(inside, wide.roll(back, 0), 0.0) * taps[:, width - 1 - back]
    return mixed


@fused
def _convolved(x: Tensor, taps: Tensor, offsets: Tensor) -> Tensor:
    return functional.silu(_mixed(x, taps, offsets)).to(x.dtype)


@fused
def _slope(x: Tensor, taps: Tensor, offsets: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the sum before SiLU, in float32."""
    mixed = _mixed(x, taps, offsets)
    share = torch.sigmoid(mixed)
    return grad.float() * share * (1 + mixed * (1 - share))


@fused
def _spread(slope: Tensor, taps: Tensor, offsets: Tensor, dtype: torch.dtype) -> Tensor:
    """Gradient of x: what each token gave to those behind it."""
    width = taps.shape[1]
    total = slope * taps[:, -1]
    for back in range(1, width):
        inside = (offsets.roll(-back, 0) >= back).unsqueeze(-1)
        total = total + torch.where(inside, slope.roll(-back, 0), 0.0) * taps[:, width - 1 - back]
    return total.to(dtype)


@fused
def _taps(slope: Tensor, taps: Tensor, x: Tensor, offsets: Tensor) -> Tensor:
    """Gradient of the taps [C, W]."""
    wide = x.float()
    each = [
        (slope * torch.where((offsets >= back).unsqueeze(-1), wide.roll(back, 0), 0.0)).sum(0)
        for back in range(taps.shape[1])
    ]
    return torch.stack(each[::-1], dim=-1)
