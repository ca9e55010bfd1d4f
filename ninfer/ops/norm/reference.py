"""Normalisations in plain torch."""

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.exact import pointwise
from ninfer.ops.precision import wide


def rmsnorm(x: Tensor, weight: Tensor, *, eps: float, unit_offset: bool) -> Tensor:
    """See the contract."""
    return _rms(x.to(wide(x)), weight, eps, unit_offset).to(x.dtype)


def gated_rmsnorm(x: Tensor, gate: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """See the contract."""
    dtype = wide(x)
    normed = _rms(x.to(dtype), weight, eps, unit_offset=False)
    return normed.mul_(pointwise(functional.silu, gate.to(dtype))).to(x.dtype)


def add_rmsnorm(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, unit_offset: bool
) -> tuple[Tensor, Tensor]:
    """See the contract."""
    dtype = wide(x)
    total = (x.to(dtype) + residual.to(dtype)).to(x.dtype)
    return rmsnorm(total, weight, eps=eps, unit_offset=unit_offset), total


def l2norm(x: Tensor, *, eps: float) -> Tensor:
    """See the contract."""
    v = x.to(wide(x))
    return (v * torch.rsqrt(v.square().sum(-1, keepdim=True).add_(eps))).to(x.dtype)


def _rms(v: Tensor, weight: Tensor, eps: float, unit_offset: bool) -> Tensor:
    scale = weight.to(v.dtype)
    normed = v * torch.rsqrt(v.square().mean(-1, keepdim=True).add_(eps))
    return normed.mul_(scale + 1 if unit_offset else scale)
