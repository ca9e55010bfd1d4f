"""Rows of tensors as kernels walk them: the last dimension dense, others at any strides."""

import torch
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.launch import INTERPRETED

_TYPES = (torch.bfloat16, torch.float16, torch.float32)


def as_rows(x: Tensor) -> Tensor:
    """x as [A, B, D] with a dense last dimension: a view, or a copy where strides allow none."""
    if x.ndim == 3:
        return x
    if x.ndim < 3:
        return x.reshape((1,) * (3 - x.ndim) + tuple(x.shape))
    return x.flatten(0, -3)


def row_strides(x: Tensor) -> tuple[int, int]:
    """Elements from one row of [A, B, D] to the next of each dimension."""
    return x.stride(0), x.stride(1)


def result_like(op: str, x: Tensor) -> Tensor:
    """Where a kernel writes results of the shape of x, contiguous.

    Float32 for the interpreter, which cuts float32 down to bf16 where a card rounds; the caller
    gives `.to(x.dtype)` back. Raises UnsupportedError, in the name of `op`, for float64.
    """
    if x.dtype not in _TYPES:
        raise UnsupportedError(f"{op}: no Triton kernel for rows of {x.dtype}; use bf16")
    made = torch.float32 if INTERPRETED and x.dtype is torch.bfloat16 else x.dtype
    return torch.empty(x.shape, dtype=made, device=x.device)
