"""Triton's names of number types, and block sizes, for the forms that launch kernels."""

from typing import Any, Final

import torch
import triton
import triton.language as tl

from ninfer.errors import UnsupportedError

_TYPES: Final = {
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.float32: tl.float32,
}


def supported(op: str, dtype: torch.dtype) -> Any:
    """Triton's type for activations of `dtype`. Raises UnsupportedError for one without kernels."""
    if dtype not in _TYPES:
        raise UnsupportedError(f"{op}: no Triton kernel for activations of {dtype}; use bf16")
    return _TYPES[dtype]


def next_power(count: int) -> int:
    """The least power of two that is at least `count`, and at least 1."""
    return int(triton.next_power_of_2(max(count, 1)))
