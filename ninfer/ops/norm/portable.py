"""The normalisations by one Triton kernel."""

from typing import Final

import torch
import triton
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.launch import INTERPRETED, launch
from ninfer.ops.linear.portable import OPERANDS
from ninfer.ops.norm import kernels
from ninfer.ops.rows import as_rows, result_like, row_strides

# A row has to fit into the registers of a program.
_LONGEST: Final = 32768
# Short rows share a program, so that each lane has some numbers to load.
_SHARED: Final = 2048


def rmsnorm(x: Tensor, weight: Tensor, *, eps: float, unit_offset: bool) -> Tensor:
    """See the contract."""
    kind = kernels.OFFSET if unit_offset else kernels.PLAIN
    return _norm("rmsnorm", x, weight, eps, kind.value)[0]


def gated_rmsnorm(x: Tensor, gate: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """See the contract."""
    return _norm("gated_rmsnorm", x, weight, eps, kernels.GATED.value, gate)[0]


def add_rmsnorm(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, unit_offset: bool
) -> tuple[Tensor, Tensor]:
    """See the contract."""
    kind = kernels.OFFSET if unit_offset else kernels.PLAIN
    return _norm("add_rmsnorm", x, weight, eps, kind.value, residual, adds=True)


def l2norm(x: Tensor, *, eps: float) -> Tensor:
    """See the contract."""
    return _norm("l2norm", x, None, eps, kernels.UNIT.value)[0]


def _norm(
    op: str,
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    kind: int,
    other: Tensor | None = None,
    *,
    adds: bool = False,
) -> tuple[Tensor, Tensor]:
    """Normed rows, and the sums they come from (the first again when nothing is added)."""
    out = result_like(op, x)
    total = result_like(op, x) if adds else out
    width = x.shape[-1]
    if width > _LONGEST:
        raise UnsupportedError(
            f"{op}: no Triton kernel for rows of {width} numbers; at most {_LONGEST}"
        )
    if out.numel():
        rows = as_rows(x)
        others = rows if other is None else as_rows(other)
        block = triton.next_power_of_2(width)
        together = max(1, _SHARED // block)
        count = rows.shape[0] * rows.shape[1]
        launch(
            kernels.norm_rows,
            (-(-count // together),),
            *(rows, others, None if weight is None else weight.contiguous(), out, total),
            *(count, rows.shape[1], width, row_strides(rows), row_strides(others), eps),
            KIND=kind,
            ADDS=adds,
            TO=OPERANDS[x.dtype],
            CUTS=INTERPRETED and x.dtype is torch.bfloat16,
            R=together,
            BLOCK=block,
            num_warps=min(max(together * block // 512, 1), 16),
        )
    return out.to(x.dtype), total.to(x.dtype)
