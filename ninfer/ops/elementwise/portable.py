"""The elementwise ops by one Triton kernel."""

from typing import Final

import triton
from torch import Tensor

from ninfer.ops.elementwise import kernels
from ninfer.ops.launch import launch
from ninfer.ops.rows import as_rows, result_like, row_strides

_BLOCK: Final = 1024


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """See the contract."""
    return _combined("silu_mul", gate, up, kernels.SILU_MUL.value)


def sigmoid_mul(x: Tensor, gate: Tensor) -> Tensor:
    """See the contract."""
    return _combined("sigmoid_mul", x, gate, kernels.SIGMOID_MUL.value)


def add(x: Tensor, y: Tensor) -> Tensor:
    """See the contract."""
    return _combined("add", x, y, kernels.ADD.value)


def _combined(op: str, x: Tensor, y: Tensor, kind: int) -> Tensor:
    out = result_like(op, x)
    if out.numel():
        if x.is_contiguous() and y.is_contiguous():
            x, y = x.view(-1), y.view(-1)
        first, second = as_rows(x), as_rows(y)
        count, width = first.shape[0] * first.shape[1], first.shape[2]
        block = min(triton.next_power_of_2(width), _BLOCK)
        together = 1 if count == 1 else _BLOCK // block
        launch(
            kernels.combine_rows,
            (-(-width // block), -(-count // together)),
            *(first, second, out, count, first.shape[1], width),
            *(row_strides(first), row_strides(second)),
            KIND=kind,
            R=together,
            BLOCK=block,
            num_warps=4,
        )
    return out.to(x.dtype)
