"""Matrix products in plain torch: decode the weight exactly, block by block, then multiply."""

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.exact import pointwise, product
from ninfer.ops.precision import wide
from ninfer.ops.tensors import Weight
from ninfer.ops.weights import decode_rows, row_blocks


def linear(x: Tensor, weight: Weight) -> Tensor:
    """See the contract."""
    return _product(x, weight).to(x.dtype)


def linear_add(x: Tensor, weight: Weight, residual: Tensor) -> Tensor:
    """See the contract."""
    product = _product(x, weight)
    return (product + residual.to(product.dtype)).to(x.dtype)


def linear_swiglu(x: Tensor, gate_up: Weight) -> Tensor:
    """See the contract."""
    gate, up = _product(x, gate_up).chunk(2, dim=-1)
    return (pointwise(functional.silu, gate) * up).to(x.dtype)


def _product(x: Tensor, weight: Weight) -> Tensor:
    dtype = wide(x)
    left = x.to(dtype)
    if not x.shape[0]:
        return left.new_empty((0, weight.shape[0]))
    if isinstance(weight, Tensor) and weight.dtype is dtype:
        return product(left, weight)
    parts = [
        product(left, decode_rows(weight, start, stop, dtype)) for start, stop in row_blocks(weight)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
