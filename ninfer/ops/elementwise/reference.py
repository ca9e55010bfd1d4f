"""Elementwise ops in plain torch."""

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.exact import pointwise
from ninfer.ops.precision import wide


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """See the contract."""
    dtype = wide(gate)
    return (pointwise(functional.silu, gate.to(dtype)) * up.to(dtype)).to(gate.dtype)


def sigmoid_mul(x: Tensor, gate: Tensor) -> Tensor:
    """See the contract."""
    dtype = wide(x)
    return (x.to(dtype) * pointwise(torch.sigmoid, gate.to(dtype))).to(x.dtype)


def add(x: Tensor, y: Tensor) -> Tensor:
    """See the contract."""
    dtype = wide(x)
    return (x.to(dtype) + y.to(dtype)).to(x.dtype)
